// Package guard decides which HTTP requests may act. Kubernetes decides about tokens: a TokenReview says whose token it
// is, and a SubjectAccessReview whether this user may use the path. k8s.io/apiserver does the same, but requires 230
// packages more, among them gRPC and OpenTelemetry, and caches answers for longer than a right may be withdrawn.
package guard

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// Audience is the audience that a token must have. A token for the API server is not accepted, so that it need not be
// sent to the bridge.
const Audience = "deltabridge"

const (
	reviewTimeout = 10 * time.Second
	// Anonymous callers can cause reviews, too. Requests beyond this rate wait or fail.
	reviewsPerSecond, reviewBurst = 5, 10
)

// Guard protects handlers. It is safe for concurrent use.
type Guard struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
	origin *http.CrossOriginProtection
	log    *slog.Logger
}

// New returns a Guard that asks the API server of kube. It sends no request, and does not change kube.
func New(kube *rest.Config, log *slog.Logger) (*Guard, error) {
	kube = rest.CopyConfig(kube)
	kube.QPS, kube.Burst, kube.RateLimiter, kube.Timeout = reviewsPerSecond, reviewBurst, nil, reviewTimeout
	tokens, err := authentication.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	access, err := authorization.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	return &Guard{tokens.TokenReviews(), access.SubjectAccessReviews(), http.NewCrossOriginProtection(), log}, nil
}

// Protect returns a handler that passes on the requests that may act:
//
//   - those with a bearer token whose user may use the path with the verb of the request's method;
//   - those without a token, from the same machine or Pod.
//
// It answers all others: with 401 if there is no valid token, 403 if the user has no right or a browser sends the
// request for another site, and 503 if the API server does not answer.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.origin.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if IsLocal(r) {
			next.ServeHTTP(w, r)
			return
		}
		if code, problem := g.review(r, r.Header.Get("Authorization")); code != http.StatusOK {
			if code == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, problem, code)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// review asks the API server about the token in the credentials of a request. It returns 200 if the request may be
// passed on.
func (g *Guard) review(r *http.Request, credentials string) (code int, problem string) {
	token, isBearer := strings.CutPrefix(credentials, "Bearer ")
	if !isBearer || token == "" {
		return http.StatusUnauthorized, "a bearer token with the audience " + Audience + " is required"
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	who, err := g.tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return g.unavailable("tokenreviews", err)
	}
	// An authenticator that knows no audiences returns none.
	if !who.Status.Authenticated || !slices.Contains(who.Status.Audiences, Audience) {
		return http.StatusUnauthorized, "the token is not valid for the audience " + Audience
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	verb := strings.ToLower(r.Method)
	may, err := g.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: verb},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return g.unavailable("subjectaccessreviews", err)
	case !may.Status.Allowed:
		return http.StatusForbidden, user.Username + " may not " + verb + " the non-resource URL " + r.URL.Path
	}
	g.log.Info("request allowed", "user", user.Username, "verb", verb, "path", r.URL.Path)
	return http.StatusOK, ""
}

// unavailable returns the answer if a review has failed. The caller need not know the reason.
func (g *Guard) unavailable(resource string, err error) (code int, problem string) {
	g.log.Warn("cannot review a request", "resource", resource, "err", err)
	return http.StatusServiceUnavailable, "the token cannot be reviewed now, see the log of the bridge"
}

// IsLocal reports whether a request may act without a token: it has none, and comes from the same machine or Pod, for
// example through `kubectl port-forward`, and neither through a proxy nor from a browser that was given another name for
// this address (DNS rebinding).
func IsLocal(r *http.Request) bool {
	if r.Header.Get("Authorization") != "" {
		return false
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && isLoopback(local.String()) && isLoopback(r.RemoteAddr) && isLoopback(r.Host)
}

// isLoopback reports whether an address, with or without a port, is localhost or a loopback address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
