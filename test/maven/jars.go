package maven

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/deltabridge/deltabridge/test/work"
)

// copyPlugin is pinned, so that what Maven runs does not depend on the day.
const copyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// ErrNoTools is the error of a machine without Java or Maven.
var ErrNoTools = errors.New("this needs java and mvn")

// Jars returns the folder of the jars that project, the text of a pom.xml, depends on. If there is no such folder yet,
// Jars creates it in .work/NAME in the repository.
func Jars(ctx context.Context, name string, project []byte) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoTools, err)
		}
	}
	return Once(ctx, name, fmt.Sprintf("jars-%x", sha256.Sum256(project))[:21], func(base, jars string) error {
		return copyJars(ctx, project, base, jars)
	})
}

// Once returns the path of .work/NAME/FILE in the repository. If it does not exist, create is called with .work/NAME
// and the path, while no other call with the same name does the same, in any process. create must not call Once with
// this name, and must leave nothing at the path if it fails.
func Once(ctx context.Context, name, file string, create func(base, path string) error) (string, error) {
	base, err := work.Dir(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, file)
	unlock, err := work.Lock(ctx, filepath.Join(base, "lock"), func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return path, create(base, path)
}

// copyJars lets Maven fill a temporary folder, which gets its name when it is complete.
func copyJars(ctx context.Context, project []byte, base, jars string) error {
	tmp, err := os.MkdirTemp(base, "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), project, 0o644); err != nil {
		return err
	}
	out := filepath.Join(tmp, "jars")
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "-f", filepath.Join(tmp, "pom.xml"), copyPlugin,
		"-DincludeScope=runtime", "-DoutputDirectory="+out)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy jars: %w\n%s", err, text)
	}
	return os.Rename(out, jars)
}
