package audit

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
)

// credentials are the current contents of the TLS files.
type credentials struct {
	opts *ServerOptions

	mu      sync.Mutex // guards the following fields
	last    *tls.Config
	problem string // why the files cannot be used; empty if they can
}

// newCredentials reads the files. It returns an error if they cannot be used.
func newCredentials(o *ServerOptions) (*credentials, error) {
	c := &credentials{opts: o}
	config, err := c.read()
	c.last = config
	return c, err
}

// config returns the configuration of a handshake. It implements tls.Config.GetConfigForClient.
func (c *credentials) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, err := c.read()
	if err != nil {
		if problem := err.Error(); problem != c.problem {
			c.problem = problem
			c.opts.Logger.Warn("cannot use the TLS files of the audit intake, going on with what they contained before",
				"err", err)
		}
		return c.last, nil
	}
	c.last, c.problem = config, ""
	return config, nil
}

func (c *credentials) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.opts.CertFile, c.opts.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q and key %q: %w; mount the files, or correct their names",
			c.opts.CertFile, c.opts.KeyFile, err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"},
		// A session would outlive a change of the CAs.
		SessionTicketsDisabled: true,
	}
	if c.opts.ClientCAFile != "" {
		config.ClientAuth = tls.VerifyClientCertIfGiven
		config.ClientCAs, err = readPool(c.opts.ClientCAFile)
	}
	return config, err
}

func readPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("client CA file: %w; mount the file, or correct its name", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client CA file: no PEM certificate in %s", file)
	}
	return pool, nil
}
