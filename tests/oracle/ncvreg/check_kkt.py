"""Check answers.json against the KKT conditions of its objectives, drop what fails, and note the levels."""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LIMIT = 1e-5
OBJECTIVE = (
    "On columns z_j = (x_j - mean)/scale with (1/n) sum z_j^2 = 1, an unpenalised intercept, and coefficients b_j on "
    "that scale: minimise f(b0, b) + sum_j P(|b_j|; lambda, gamma). f is RSS/(2n) for gaussian, and the mean negative "
    "log-likelihood (logit and log links) for binomial and poisson. P'(t) is lambda for the lasso; "
    "max(0, lambda - t/gamma) for MCP; lambda up to t = lambda and then max(0, gamma*lambda - t)/(gamma - 1) for SCAD. "
    "Exception, rescaling = adaptive (ncvreg's own binomial and poisson fits with SCAD or MCP): the stored point "
    "solves the stationarity conditions with P'(v_j |b_j|) in place of P'(|b_j|), where v_j = (1/n) sum_i w_i z_ij^2 "
    "and w_i is the working weight at the solution (mu(1 - mu) or mu); the lambdas are the same. "
    "coef is (1 + p) x L on the original scale of the columns, the intercept first. "
    "loss is ncvreg's: RSS for gaussian, half the deviance for binomial and poisson, not divided by n. "
    "kkt_violation is the largest violation at each lambda, intercept included, on the standardised scale."
)


def slope(t, lam, penalty, gamma):
    """The derivative of the penalty at t >= 0."""
    if penalty == "lasso":
        return np.full_like(t, lam)
    if penalty == "MCP":
        return np.maximum(0.0, lam - t / gamma)
    return np.where(t <= lam, lam, np.maximum(0.0, gamma * lam - t) / (gamma - 1))


def violation(z, y, b0, b, lam, family, penalty, gamma, adaptive):
    """The largest violation of the KKT conditions, intercept included, on the standardised scale."""
    eta = b0 + z @ b
    mu = {"gaussian": lambda e: e, "binomial": lambda e: 1 / (1 + np.exp(-e)), "poisson": np.exp}[family](eta)
    weight = {"gaussian": np.ones_like(mu), "binomial": mu * (1 - mu), "poisson": mu}[family]
    v = weight @ z**2 / len(y) if adaptive else np.ones(len(b))
    score = z.T @ (y - mu) / len(y)
    active = np.abs(score - np.sign(b) * slope(v * np.abs(b), lam, penalty, gamma))
    resting = np.maximum(0.0, np.abs(score) - lam)
    return float(max(abs(np.mean(y - mu)), np.where(b != 0, active, resting).max()))


def half_deviance(y, eta, family):
    """ncvreg's loss at a linear predictor."""
    if family == "gaussian":
        return float(np.sum((y - eta) ** 2))
    if family == "binomial":
        return float(np.sum(np.logaddexp(0, eta) - y * eta))
    return float(np.sum(np.where(y > 0, y * (np.log(np.maximum(y, 1)) - eta), 0.0)))


def main() -> None:
    table = np.genfromtxt(HERE / "data.csv", delimiter=",", names=True)
    x = np.column_stack([table[name] for name in table.dtype.names if name.startswith("x")])
    mean = x.mean(axis=0)
    scale = np.sqrt(((x - mean) ** 2).mean(axis=0))
    z = (x - mean) / scale
    answers = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
    for case in answers["cases"]:
        family, penalty = case["family"], case["penalty"]
        y = table[family]
        coef = np.array(case["coef"])
        adaptive = case["method"] == "ncvreg" and family != "gaussian" and penalty != "lasso"
        levels, plain, loss_gaps = [], [], []
        for k, lam in enumerate(case["lambda"]):
            b = coef[1:, k] * scale
            b0 = coef[0, k] + coef[1:, k] @ mean
            levels.append(violation(z, y, b0, b, lam, family, penalty, case["gamma"], adaptive))
            plain.append(violation(z, y, b0, b, lam, family, penalty, case["gamma"], False))
            loss_gaps.append(abs(half_deviance(y, b0 + z @ b, family) / case["loss"][k] - 1))
        keep = [k for k, level in enumerate(levels) if level < LIMIT]
        for field in ("lambda", "loss", "starts_agree"):
            if field in case:
                case[field] = [case[field][k] for k in keep]
        case["coef"] = coef[:, keep].tolist()
        case["rescaling"] = "adaptive" if adaptive else "none"
        case["kkt_violation"] = [levels[k] for k in keep]
        if adaptive:
            case["kkt_violation_without_rescaling"] = [plain[k] for k in keep]
        agree = f"  starts agree {sum(case['starts_agree'])}" if "starts_agree" in case else ""
        print(
            f"{family:9s}{penalty:6s}{case['gamma'] or '':<6}{case['method']:11s} kept {len(keep):2d}/{len(levels)}"
            f"  KKT {max(levels):.1e}  without rescaling {max(plain):.1e} ({sum(p < LIMIT for p in plain)} pass)"
            f"  loss {max(loss_gaps):.1e}{agree}"
        )
    answers["objective"] = OBJECTIVE
    head = {key: value for key, value in answers.items() if key != "cases"}
    cases = ",\n".join(json.dumps(case) for case in answers["cases"])
    text = json.dumps(head)[:-1] + ', "cases": [\n' + cases + "\n]}\n"
    (HERE / "answers.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
