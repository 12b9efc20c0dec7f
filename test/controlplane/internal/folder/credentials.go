package folder

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is long because nothing renews the certificates of a folder.
const validity = 10 * 365 * 24 * time.Hour

// newCredentials makes the content of the pki directory, by file name.
func newCredentials() (map[string][]byte, error) {
	ca, caKey, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	server, serverKey, err := newServerCert(ca, caKey)
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("service-account key: %w", err)
	}
	files := map[string][]byte{
		"ca.crt":        pemBlock("CERTIFICATE", ca.Raw),
		"apiserver.crt": pemBlock("CERTIFICATE", server),
		"tokens.csv":    newTokens(),
	}
	for name, key := range map[string]*ecdsa.PrivateKey{
		"ca.key":              caKey,
		"apiserver.key":       serverKey,
		"service-account.key": accountKey,
	} {
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		files[name] = pemBlock("EC PRIVATE KEY", der)
	}
	return files, nil
}

func newAuthority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate("local control plane")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func newServerCert(ca *x509.Certificate, caKey *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate("kube-apiserver")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	// The last is that of the Service kubernetes, which Pods use.
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	return der, key, err
}

func certificate(commonName string) *x509.Certificate {
	var serial [16]byte
	rand.Read(serial[:]) // never fails, see its documentation
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:]),
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Hour), // a clock that is set back a little does no harm
		NotAfter:     now.Add(validity),
	}
}

// newTokens makes the static token file: token, user, uid, groups.
// The format is that of kube-apiserver's --token-auth-file.
func newTokens() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s,%s,%s,%q\n", rand.Text(), Admin, Admin, "system:masters")
	fmt.Fprintf(&b, "%s,%s,%s\n", rand.Text(), ControllerManager, ControllerManager)
	return b.Bytes()
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
