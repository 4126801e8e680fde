# Reads data.csv beside this script and writes answers.json; then run check_kkt.py, which adds the
# KKT levels and drops what fails them.  Needs only the package ncvreg (JSON is written by hand).
library(ncvreg)

argument <- grep("^--file=", commandArgs(FALSE), value = TRUE)
here <- if (length(argument)) dirname(normalizePath(sub("^--file=", "", argument[1]))) else "."
data <- read.csv(file.path(here, "data.csv"))
X <- as.matrix(data[, grep("^x[0-9]+$", names(data))])
scales <- attr(std(X), "scale")
EPS <- 1e-10
MAX_ITER <- 1e6
CONCAVITY <- c(SCAD = 3.7, MCP = 3, lasso = NA)

# The derivative of the penalty (t >= 0), divided by lambda.
relative_slope <- function(t, lambda, penalty, gamma) {
  if (penalty == "MCP") return(pmax(0, 1 - t / (gamma * lambda)))
  ifelse(t <= lambda, 1, pmax(0, gamma * lambda - t) / ((gamma - 1) * lambda))
}

# ncvreg's glm fits rescale MCP and SCAD by the working weights, so they are not stationary points of
# the plain penalised likelihood.  The plain one is solved here by local linear approximation: repeated
# weighted lassos, each solved by ncvreg, with weights from the penalty's slope at the last solution.
lla <- function(y, family, penalty, gamma, lambda, start) {
  solution <- start
  for (round in 1:5000) {
    factor <- relative_slope(abs(solution[-1]) * scales, lambda, penalty, gamma)
    fit <- suppressWarnings(ncvreg(X, y, family, "lasso", lambda = lambda, penalty.factor = factor,
                                   eps = EPS, max.iter = MAX_ITER, convex = FALSE, warn = FALSE))
    if (length(fit$lambda) == 0) return(NULL)
    change <- max(abs(fit$beta[-1, 1] - solution[-1]) * scales)
    solution <- fit$beta[, 1]
    if (change < 1e-9) return(list(beta = solution, loss = fit$loss))
  }
  NULL
}

number <- function(x) sprintf("%.17g", x)
vector_json <- function(x) paste0("[", paste(x, collapse = ", "), "]")
matrix_json <- function(m) vector_json(apply(m, 1, function(row) vector_json(number(row))))
case_json <- function(family, penalty, gamma, method, lambda, beta, loss, extra = "") {
  paste0('{"family": "', family, '", "penalty": "', penalty, '", "gamma": ',
         if (is.na(gamma)) "null" else number(gamma), ', "method": "', method,
         '", "lambda": ', vector_json(number(lambda)), ', "coef": ', matrix_json(beta),
         ', "loss": ', vector_json(number(loss)), extra, "}")
}

cases <- character()
for (family in c("gaussian", "binomial", "poisson")) {
  y <- as.double(data[[family]])
  # ncvreg's own sequence: from lambda_max = max_j |x_j'(y - mean(y))|/n to 0.02 lambda_max, equal on the log scale
  lambda <- ncvreg(X, y, family, "lasso", nlambda = 15, lambda.min = 0.02, warn = FALSE)$lambda
  for (penalty in names(CONCAVITY)) {
    gamma <- CONCAVITY[[penalty]]
    fit <- ncvreg(X, y, family, penalty, gamma = if (is.na(gamma)) 3 else gamma, alpha = 1, lambda = lambda,
                  eps = EPS, max.iter = MAX_ITER, convex = FALSE, warn = FALSE)
    cases <- c(cases, case_json(family, penalty, gamma, "ncvreg", fit$lambda, fit$beta, fit$loss))
    if (family == "gaussian" || penalty == "lasso") next

    free <- ncvreg(X, y, family, "lasso", lambda = c(lambda, 0), eps = EPS, max.iter = MAX_ITER,
                   convex = FALSE, warn = FALSE)$beta
    free <- free[, ncol(free)]
    # binomial weights are at most 1/4, so the usual concavities leave several local minima; four times
    # the concavity is stored too
    for (concavity in if (family == "binomial") gamma * c(1, 4) else gamma) {
      warm <- 0 * free
      beta <- loss <- kept <- agree <- NULL
      for (one in lambda) {
        path <- lla(y, family, penalty, concavity, one, warm)
        if (is.null(path)) next
        others <- lapply(list(0 * free, free), function(start) lla(y, family, penalty, concavity, one, start))
        gaps <- sapply(others, function(o) if (is.null(o)) Inf else max(abs(o$beta - path$beta)[-1] * scales))
        beta <- cbind(beta, path$beta)
        loss <- c(loss, path$loss)
        kept <- c(kept, one)
        agree <- c(agree, max(gaps) < 1e-6)
        warm <- path$beta
      }
      cases <- c(cases, case_json(family, penalty, concavity, "ncvreg-lla", kept, beta, loss,
                                  paste0(', "starts_agree": ', vector_json(ifelse(agree, "true", "false")))))
    }
  }
}

versions <- paste0('"ncvreg_version": "', packageVersion("ncvreg"), '", "r_version": "',
                   R.version$major, ".", R.version$minor, '"')
settings <- paste0('"settings": {"alpha": 1, "eps": ', EPS, ', "max_iter": ', MAX_ITER, "}")
writeLines(paste0("{", versions, ",\n", settings, ",\n\"cases\": [\n", paste(cases, collapse = ",\n"), "\n]}"),
           file.path(here, "answers.json"))
