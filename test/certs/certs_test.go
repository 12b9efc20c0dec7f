package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/certs"
)

// What is issued, also by an authority that was saved and loaded, is what crypto/x509 accepts, or not.
func TestIssue(t *testing.T) {
	made, err := certs.New("authority")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := made.Save(file); err != nil {
		t.Fatal(err)
	}
	a, err := certs.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(made.PEM())
	for _, c := range []struct {
		name    string
		options certs.Options
		verify  x509.VerifyOptions
		ok      bool
	}{
		{"server", certs.Options{Hosts: []string{"127.0.0.1", "a.example"}}, x509.VerifyOptions{DNSName: "a.example"}, true},
		{"other host", certs.Options{Hosts: []string{"127.0.0.1"}}, x509.VerifyOptions{DNSName: "a.example"}, false},
		{"client", certs.Options{Name: "c"}, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true},
		{"expired", certs.Options{Name: "c", Lifetime: -time.Minute}, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, false},
	} {
		certFile, keyFile, err := a.IssueFiles(t.TempDir(), c.options)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		c.verify.Roots = roots
		if _, err := pair.Leaf.Verify(c.verify); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
