package guard

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/internal/rbac"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Main(m)) }

// account creates a service account with some rights, and returns its kubeconfig and tokens for an audience.
func account(t *testing.T, rules []rbacv1.PolicyRule) (as *rest.Config, token func(audience string) string) {
	t.Helper()
	c := cluster.Shared(t)
	path, err := c.RestrictedKubeconfig(t.Context(), rules)
	observe.Must(t, err)
	as, err = clientcmd.BuildConfigFromFlags("", path)
	observe.Must(t, err)
	return as, func(audience string) string {
		token, err := c.Token(t.Context(), path, audience)
		observe.Must(t, err)
		return token
	}
}

// serve returns the address of a server that a guard with the rights of an account protects. Protected requests are
// answered with 200.
func serve(t *testing.T, as *rest.Config) string {
	t.Helper()
	g, err := New(as, slog.New(slog.NewTextHandler(t.Output(), nil)))
	observe.Must(t, err)
	s := httptest.NewServer(g.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(s.Close)
	return s.URL
}

// request sends a request that does not seem to come from the same machine, and returns the status code.
func request(t *testing.T, method, url string, header ...string) (code int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	observe.Must(t, err)
	r.Host = "bridge.example"
	for n := 0; n+1 < len(header); n += 2 {
		if r.Header.Set(header[n], header[n+1]); header[n] == "Host" {
			r.Host = header[n+1]
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	observe.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	observe.Must(t, err)
	t.Logf("%s %s: %d %s", method, r.URL.Path, response.StatusCode, body)
	if code = response.StatusCode; (code == http.StatusUnauthorized) != (response.Header.Get("WWW-Authenticate") == "Bearer") {
		t.Errorf("%d with WWW-Authenticate %q", code, response.Header.Get("WWW-Authenticate"))
	}
	return code
}

// The API server decides about real tokens. The rights that `bridge rbac` grants are sufficient to ask it.
func TestTokens(t *testing.T) {
	t.Parallel()
	bridge, own := account(t, rbac.Commands())
	_, strangers := account(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/api/pause"}, Verbs: []string{"get"}}})
	url := serve(t, bridge)
	good, other := "Bearer "+own(Audience), "Bearer "+strangers(Audience)
	for name, tt := range map[string]struct {
		method, path, credentials string
		want                      int
	}{
		"a valid token":          {http.MethodPost, "/api/pause?sink=a", good, http.StatusOK},
		"no right at all":        {http.MethodPost, "/api/resync", other, http.StatusForbidden},
		"no right to the verb":   {http.MethodPost, "/api/pause", other, http.StatusForbidden},
		"a right to the verb":    {http.MethodGet, "/api/pause", other, http.StatusOK},
		"another path":           {http.MethodPost, "/api/other", good, http.StatusForbidden},
		"another method":         {http.MethodDelete, "/api/pause", good, http.StatusForbidden},
		"another audience":       {http.MethodPost, "/api/pause", "Bearer " + own("other"), http.StatusUnauthorized},
		"for the API server":     {http.MethodPost, "/api/pause", "Bearer " + bridge.BearerToken, http.StatusUnauthorized},
		"damaged":                {http.MethodPost, "/api/pause", good[:len(good)-9], http.StatusUnauthorized},
		"empty":                  {http.MethodPost, "/api/pause", "Bearer ", http.StatusUnauthorized},
		"other credentials":      {http.MethodPost, "/api/pause", "Basic YTpi", http.StatusUnauthorized},
		"none":                   {http.MethodPost, "/api/pause", "", http.StatusUnauthorized},
		"none with another verb": {http.MethodGet, "/api/pause", "", http.StatusUnauthorized},
		"none for another path":  {http.MethodPut, "/", "", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := request(t, tt.method, url+tt.path, "Authorization", tt.credentials); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// Without the right to ask the API server, no token is accepted.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	bridge, own := account(t, rbac.Commands()[1:]) // it may act itself, but not ask
	url := serve(t, bridge)
	if got := request(t, http.MethodPost, url+"/api/pause", "Authorization", "Bearer "+own(Audience)); got != 503 {
		t.Errorf("%d, want 503", got)
	}
}

// Only a request that comes from the same machine, by its own name and without a proxy, needs no token. A browser must
// not send it for another site.
func TestLocalRequests(t *testing.T) {
	t.Parallel()
	url := serve(t, &rest.Config{Host: "https://127.0.0.1:1"})
	for name, tt := range map[string]struct {
		header []string
		want   int
	}{
		"by address":           {[]string{"Host", "127.0.0.1:8080"}, http.StatusOK},
		"by name":              {[]string{"Host", "localhost"}, http.StatusOK},
		"IPv6":                 {[]string{"Host", "[::1]"}, http.StatusOK},
		"rebound name":         {[]string{"Host", "attacker.example:8080"}, http.StatusUnauthorized},
		"similar name":         {[]string{"Host", "localhost.attacker.example"}, http.StatusUnauthorized},
		"through a proxy":      {[]string{"Host", "localhost", "X-Forwarded-For", "192.0.2.1"}, http.StatusUnauthorized},
		"through another one":  {[]string{"Host", "localhost", "Via", "1.1 proxy"}, http.StatusUnauthorized},
		"a wrong token":        {[]string{"Host", "localhost", "Authorization", "Basic YTpi"}, http.StatusUnauthorized},
		"another site":         {[]string{"Host", "localhost", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"an old browser":       {[]string{"Host", "localhost", "Origin", "https://attacker.example"}, http.StatusForbidden},
		"the same site":        {[]string{"Host", "localhost", "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		"a site with no token": {[]string{"Host", "attacker.example", "Sec-Fetch-Site", "same-origin"}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if got := request(t, http.MethodPost, url+"/api/pause", tt.header...); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

// Both ends of the connection must be loopback addresses: a proxy in the Pod connects from one of them.
func TestIsLocal(t *testing.T) {
	for _, tt := range []struct {
		remote, local string
		want          bool
	}{
		{"127.0.0.1:5000", "127.0.0.1:8080", true},
		{"[::1]:5000", "[::1]:8080", true},
		{"127.0.0.6:5000", "10.0.0.7:8080", false},
		{"10.0.0.8:5000", "127.0.0.1:8080", false},
		{"10.0.0.8:5000", "10.0.0.7:8080", false},
	} {
		local, err := net.ResolveTCPAddr("tcp", tt.local)
		observe.Must(t, err)
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/api/pause", http.NoBody)
		if r.RemoteAddr = tt.remote; IsLocal(r) != tt.want {
			t.Errorf("from %s to %s: %t", tt.remote, tt.local, !tt.want)
		}
		if IsLocal(r.WithContext(t.Context())) {
			t.Error("without a local address")
		}
	}
}
