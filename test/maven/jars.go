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
	"syscall"
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
	return Once(name, fmt.Sprintf("jars-%x", sha256.Sum256(project))[:21], func(base, jars string) error {
		return copyJars(ctx, project, base, jars)
	})
}

// Once returns the path of .work/NAME/FILE in the repository. If it does not exist, create is called with .work/NAME
// and the path, while no other call with the same name does the same, in any process. create must not call Once with
// this name, and must leave nothing at the path if it fails.
func Once(name, file string, create func(base, path string) error) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	base := filepath.Join(root, ".work", name)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(base, file)

	unlock, err := lock(filepath.Join(base, "lock"))
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

// lock takes an exclusive lock on the file, waiting for its holder. It ends with the process at the latest.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// repositoryRoot is the nearest folder upwards with a go.mod that is the main module's.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, errMod := os.Stat(filepath.Join(dir, "go.mod"))
		_, errSelf := os.Stat(filepath.Join(dir, "test", "maven"))
		if errMod == nil && errSelf == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the repository: no folder upwards holds go.mod and test/maven")
		}
		dir = parent
	}
}
