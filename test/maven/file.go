package maven

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
)

const central = "https://repo1.maven.org/maven2/"

// File returns a file of Maven Central with this SHA-256 checksum in hex. It is for archives that Maven itself cannot
// fetch, because the parent of their pom.xml is missing. If the file is not there yet, File downloads it to .work/NAME
// in the repository. It only requires Java ([ErrNoTools]), for what the archive contains.
func File(ctx context.Context, name, file, checksum string) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoTools, err)
	}
	return Once(ctx, name, path.Base(file), func(base, path string) error {
		tmp, err := os.CreateTemp(base, "tmp-")
		if err != nil {
			return err
		}
		defer os.Remove(tmp.Name())
		defer tmp.Close()
		if err := download(ctx, tmp, central+file, checksum); err != nil {
			return fmt.Errorf("download %s: %w", central+file, err)
		}
		return os.Rename(tmp.Name(), path)
	})
}

func download(ctx context.Context, to io.Writer, url, checksum string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), res.Body); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != checksum {
		return fmt.Errorf("its checksum is %s, not %s", got, checksum)
	}
	return nil
}
