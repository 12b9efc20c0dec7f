package folder

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func open(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// contents reads all files of the folder.
func contents(t *testing.T, f *Folder) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(f.Path(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want it readable by its owner alone", path, info.Mode())
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestOpenKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder")
	first := contents(t, open(t, path))
	if len(first) != 6 {
		t.Fatalf("a new folder has %d files, want 6", len(first))
	}
	if second := contents(t, open(t, path)); !reflect.DeepEqual(first, second) {
		t.Error("the second Open changed the credentials")
	}
	if other := contents(t, open(t, t.TempDir())); len(other) != len(first) {
		t.Errorf("an empty folder gets %d files, want %d", len(other), len(first))
	}
}

func TestServerCertIsTrusted(t *testing.T) {
	f := open(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(f.ServerCert(), f.ServerKey())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(f.CA())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, name := range []string{"127.0.0.1", "::1", "localhost", "10.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
}

func TestKubeconfigs(t *testing.T) {
	f := open(t, t.TempDir())
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:2"} { // the second replaces the first
		if err := f.WriteKubeconfigs(server); err != nil {
			t.Fatal(err)
		}
		for path, user := range map[string]string{f.Kubeconfig(): Admin, f.ControllerManagerKubeconfig(): ControllerManager} {
			config, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != server || config.Insecure || len(config.CAData) == 0 {
				t.Errorf("%s leads to %s, insecure: %v", path, config.Host, config.Insecure)
			}
			if token := f.tokens[user]; token == "" || config.BearerToken != token {
				t.Errorf("%s has not the token of %s", path, user)
			}
		}
	}
}
