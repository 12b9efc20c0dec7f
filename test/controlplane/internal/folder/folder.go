// Package folder owns the files of one cluster: keys, certificates, tokens and
// kubeconfigs.
//
// Contract: Open on a folder without credentials makes all of them; on a folder
// that has them it changes none. They are written as one unit, so a folder never
// holds half a set.
package folder

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Users that the static token file knows.
const (
	Admin             = "admin"
	ControllerManager = "system:kube-controller-manager"
)

// Folder is the place of one cluster on disk. Its methods return absolute paths.
type Folder struct {
	path   string
	tokens map[string]string // user name -> bearer token
}

// Open returns the folder at path. It makes the folder, and the credentials if
// there are none yet.
func Open(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	f := &Folder{path: path}
	switch _, err := os.Stat(f.pki("")); {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.create(); err != nil {
			return nil, fmt.Errorf("make credentials in %s: %w", path, err)
		}
	case err != nil:
		return nil, fmt.Errorf("folder of the cluster: %w", err)
	}
	if f.tokens, err = readTokens(f.Tokens()); err != nil {
		return nil, err
	}
	return f, nil
}

// Path is the folder itself.
func (f *Folder) Path() string { return f.path }

// EtcdData is the directory of etcd's data.
func (f *Folder) EtcdData() string { return filepath.Join(f.path, "etcd") }

// Kubeconfig is the file with which an administrator reaches the cluster.
func (f *Folder) Kubeconfig() string { return filepath.Join(f.path, "kubeconfig") }

// ControllerManagerKubeconfig is the file for the kube-controller-manager.
func (f *Folder) ControllerManagerKubeconfig() string {
	return filepath.Join(f.path, "controller-manager.kubeconfig")
}

// CA is the certificate of the cluster's own authority (PEM).
func (f *Folder) CA() string { return f.pki("ca.crt") }

// ServerCert and ServerKey are what the API server presents (PEM).
func (f *Folder) ServerCert() string { return f.pki("apiserver.crt") }

// ServerKey is the private key of ServerCert (PEM).
func (f *Folder) ServerKey() string { return f.pki("apiserver.key") }

// ServiceAccountKey is the private key that signs and, through its public half,
// verifies service-account tokens (PEM).
func (f *Folder) ServiceAccountKey() string { return f.pki("service-account.key") }

// Tokens is the static token file of the API server (CSV).
func (f *Folder) Tokens() string { return f.pki("tokens.csv") }

func (f *Folder) pki(name string) string { return filepath.Join(f.path, "pki", name) }

// create writes a full set of credentials. It fills a directory beside the final
// one and renames it, so that a crash in the middle leaves nothing to trip over.
func (f *Folder) create() error {
	files, err := newCredentials()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(f.path, "pki-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // nothing is left there once it was renamed
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(tmp, f.pki(""))
}

// WriteKubeconfigs writes the kubeconfigs of all users for the API server at
// the given URL. Each file is replaced in one step.
func (f *Folder) WriteKubeconfigs(server string) error {
	ca, err := os.ReadFile(f.CA())
	if err != nil {
		return fmt.Errorf("write kubeconfigs: %w", err)
	}
	for user, path := range map[string]string{
		Admin:             f.Kubeconfig(),
		ControllerManager: f.ControllerManagerKubeconfig(),
	} {
		token, ok := f.tokens[user]
		if !ok {
			return fmt.Errorf("write kubeconfigs: %s has no token for the user %s", f.Tokens(), user)
		}
		config := clientcmdapi.NewConfig()
		config.Clusters["local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: user}
		config.CurrentContext = "local"
		data, err := clientcmd.Write(*config)
		if err != nil {
			return fmt.Errorf("encode kubeconfig of %s: %w", user, err)
		}
		if err := replaceFile(path, data); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

// replaceFile puts data at path so that a reader sees the old file or the new
// one, never a part.
func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// readTokens reads the API server's token file: token, user, uid, groups.
func readTokens(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer file.Close()
	r := csv.NewReader(file)
	r.FieldsPerRecord = -1 // the groups are optional
	records, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read tokens in %s: %w", path, err)
	}
	tokens := make(map[string]string, len(records))
	for _, record := range records {
		if len(record) < 2 {
			return nil, fmt.Errorf("read tokens in %s: a line has no user name", path)
		}
		tokens[record[1]] = record[0]
	}
	return tokens, nil
}
