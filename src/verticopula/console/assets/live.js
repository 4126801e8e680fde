// Renews the part of a page that changes by itself. Without scripts the page is the same, and is renewed by hand.
"use strict";
(() => {
  const SECONDS = 4;
  const here = document.querySelector("[data-live]");
  if (!here) return;
  const renew = async () => {
    // Whoever is typing, or has opened something, is not disturbed.
    const busy = here.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (!busy && document.visibilityState === "visible") {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
        if (answer.status === 401) { location.reload(); return; }
        if (answer.ok) {
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const fresh = page.querySelector("[data-live]");
          if (fresh && fresh.innerHTML !== here.innerHTML) {
            const focused = document.activeElement && here.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
            here.replaceChildren(...fresh.childNodes);
            if (focused) { const again = [...here.querySelectorAll("a")].find(a => a.getAttribute("href") === focused); if (again) again.focus(); }
          }
        }
      } catch { /* the console was stopped: the page stays as it is */ }
    }
    setTimeout(renew, 1000 * SECONDS);
  };
  setTimeout(renew, 1000 * SECONDS);
})();
