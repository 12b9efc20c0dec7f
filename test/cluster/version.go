package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// stagingModule is a module that the go.mod of k8s.io/kubernetes requires at v0.0.0.
var stagingModule = regexp.MustCompile(`(?m)^\s*(?:require )?(k8s\.io/\S+) v0\.0\.0( |$)`)

// goLines are the lines that say how Go compiles: "go" and "godebug".
var goLines = regexp.MustCompile(`(?m)^(?:go|godebug) .+$`)

// writeModfile writes the modfile, and its go.sum, if they do not exist yet. They are those of test/controlplane with
// another version of Kubernetes, and with the etcd and the other modules that this version requires.
func (b builder) writeModfile(ctx context.Context, version string) error {
	sums := strings.TrimSuffix(b.modfile, ".mod") + ".sum" // written last
	if _, err := os.Stat(sums); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	answer, err := b.command(ctx, "mod", "download", "-json", "k8s.io/kubernetes@v"+version).Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w\n%s", err, answer) // the answer has the error
	}
	var kubernetes struct{ GoMod string }
	if err := json.Unmarshal(answer, &kubernetes); err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	gomod, err := os.ReadFile(kubernetes.GoMod)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "module %s/test/controlplane\n\n%s\n\nrequire k8s.io/kubernetes v%s\n",
		modulePath, bytes.Join(goLines.FindAll(gomod, -1), []byte("\n")), version)
	for _, m := range stagingModule.FindAllSubmatch(gomod, -1) {
		text = fmt.Appendf(text, "replace %s => %[1]s v0%s\n", m[1], strings.TrimPrefix(version, "1"))
	}
	if err := os.WriteFile(b.modfile, text, 0o644); err != nil {
		return err
	}
	if text, err := b.command(ctx, "mod", "tidy", "-modfile="+b.modfile).CombinedOutput(); err != nil {
		return fmt.Errorf("go mod tidy: %w\n%s", err, text)
	}
	return nil
}
