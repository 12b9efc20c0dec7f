package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// New makes an authority of that common name, valid for ten years.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Options of a certificate.
type Options struct {
	Name     string        // common name
	Hosts    []string      // names and addresses that it is for; none: a client's
	Lifetime time.Duration // 0: a year. Negative: it ended so long ago
	Early    time.Duration // not 0: it becomes valid only after this time
}

// Issue makes a certificate and its key, as PEM.
func (a *Authority) Issue(o Options) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	if o.Lifetime == 0 {
		o.Lifetime = 365 * 24 * time.Hour
	}
	end := time.Now().Add(o.Lifetime)
	begin := end.Add(-2 * 365 * 24 * time.Hour)
	if o.Early != 0 {
		begin = time.Now().Add(o.Early)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: o.Name},
		NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range o.Hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER), nil
}

// IssueFiles writes tls.crt and tls.key of a new certificate into dir, over those that are there.
func (a *Authority) IssueFiles(dir string, o Options) (certFile, keyFile string, err error) {
	cert, key, err := a.Issue(o)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	return certFile, keyFile, errors.Join(os.WriteFile(certFile, cert, 0o600), os.WriteFile(keyFile, key, 0o600))
}

// Save writes the authority, with its key, to file.
func (a *Authority) Save(file string) error {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(encode("PRIVATE KEY", der), a.pem...), 0o600)
}

// Load reads what Save has written.
func Load(file string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T", file, pair.PrivateKey)
	}
	return &Authority{cert: pair.Leaf, key: key, pem: encode("CERTIFICATE", pair.Certificate[0])}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
