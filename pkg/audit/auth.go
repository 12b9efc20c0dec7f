package audit

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// authenticate accepts a request with a valid client certificate or a valid token.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) *refusal {
	var refused *refusal
	if h.opts.Clients && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if refused = h.checkCertificate(w, r.TLS.PeerCertificates[0]); refused == nil {
			return nil
		}
	}
	credentials := "client certificate"
	if h.opts.TokenFile != "" {
		if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
			return h.checkToken(w, strings.TrimSpace(token))
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		if credentials = "bearer token"; h.opts.Clients {
			credentials = "client certificate or bearer token"
		}
	}
	if refused == nil {
		refused = refuse(Unauthenticated, http.StatusUnauthorized, "the request has no %s", credentials)
	}
	return refused
}

// checkCertificate checks the verified certificate of a client.
func (h *Handler) checkCertificate(w http.ResponseWriter, leaf *x509.Certificate) *refusal {
	switch {
	case time.Now().After(leaf.NotAfter): // since the handshake
		w.Header().Set("Connection", "close") // so that the client sends its next certificate
		return refuse(Unauthenticated, http.StatusUnauthorized, "the client certificate expired on %s",
			leaf.NotAfter.UTC().Format(time.RFC3339))
	case len(h.opts.Names) > 0 && !slices.Contains(h.opts.Names, leaf.Subject.CommonName):
		return refuse(Forbidden, http.StatusForbidden,
			"the common name %q of the client certificate is not one of those that are configured", leaf.Subject.CommonName)
	}
	return nil
}

func (h *Handler) checkToken(w http.ResponseWriter, token string) *refusal {
	accepted, err := readTokens(h.opts.TokenFile)
	if err != nil {
		return &refusal{reason: Failing, status: http.StatusServiceUnavailable, retry: retryDisk, err: err}
	}
	equal, given := 0, sha256.Sum256([]byte(token))
	for _, one := range accepted {
		hash := sha256.Sum256([]byte(one))
		equal |= subtle.ConstantTimeCompare(given[:], hash[:])
	}
	if equal == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return refuse(Unauthenticated, http.StatusUnauthorized, "the bearer token is not valid")
	}
	return nil
}

// readTokens returns the tokens in a file. The error does not contain any.
func readTokens(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("token file: %w; mount the file, or correct its name", err)
	}
	tokens := strings.Fields(string(text))
	if len(tokens) == 0 {
		return nil, fmt.Errorf("token file %s is empty; write a token to it", file)
	}
	return tokens, nil
}
