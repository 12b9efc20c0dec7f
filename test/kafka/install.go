package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
)

//go:embed pom.xml
var pom []byte

// versionVariable names an environment variable with another version of Kafka than that of pom.xml: test/matrix.
const versionVariable = "DELTABRIDGE_TEST_KAFKA"

var versionInPOM = regexp.MustCompile(`(<artifactId>kafka_2\.13</artifactId>\s*<version>)[^<]+`)

// copyPlugin is pinned, so that what Maven runs does not depend on the day.
const copyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// errNoTools: the machine can't run a broker. Tests are skipped because of it, outside CI.
var errNoTools = errors.New("a Kafka broker needs java and mvn")

// install returns the folder that holds the broker's jars, and fills it if needed. The folder's name holds a
// hash of pom.xml: another version is another folder.
func install(ctx context.Context) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", errNoTools, err)
		}
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	project := pom
	if version := os.Getenv(versionVariable); version != "" {
		project = versionInPOM.ReplaceAll(pom, []byte("${1}"+version))
	}
	base := filepath.Join(root, ".work", "kafka")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	jars := filepath.Join(base, fmt.Sprintf("jars-%x", sha256.Sum256(project))[:21])

	unlock, err := lock(filepath.Join(base, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return jars, copyJars(ctx, project, base, jars)
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
		return fmt.Errorf("copying the jars of Kafka: %w\n%s", err, text)
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
		_, errPom := os.Stat(filepath.Join(dir, "test", "kafka", "pom.xml"))
		if errMod == nil && errPom == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the repository: no folder upwards holds go.mod and test/kafka")
		}
		dir = parent
	}
}
