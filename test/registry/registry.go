package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/freeport"
	"github.com/deltabridge/deltabridge/test/maven"
	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
)

// The archive of Apicurio Registry. 3.0 is the last version that runs with Java 17.
const (
	archive  = "io/apicurio/apicurio-registry-app/3.0.9/apicurio-registry-app-3.0.9-all.tar.gz"
	checksum = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
)

const (
	startTimeout = 5 * time.Minute // on a busy machine
	path         = "/apis/ccompat/v7"
)

// Registry is a schema registry. It is not safe for concurrent use.
type Registry struct {
	dir     string
	address string
	process *process.Process // nil if it does not run
	output  bytes.Buffer
}

// NewForTest returns a registry for this test alone, which ends it. It is not started.
func NewForTest(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{dir: t.TempDir()}
	err := r.install(t.Context())
	if errors.Is(err, maven.ErrNoTools) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// install unpacks the archive and chooses a port.
func (r *Registry) install(ctx context.Context) error {
	file, err := maven.File(ctx, "registry", archive, checksum)
	if err != nil {
		return err
	}
	if text, err := exec.CommandContext(ctx, "tar", "-xzf", file, "-C", r.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", file, err, text)
	}
	found, err := freeport.Reserve(1)
	if err != nil {
		return err
	}
	r.address = freeport.Address(found[0])
	return nil
}

// Address returns host:port of the registry, also while it does not run.
func (r *Registry) Address() string { return r.address }

// URL returns the URL of the API, also while the registry does not run.
func (r *Registry) URL() string { return "http://" + r.address + path }

// Start starts the registry, without schemas, and returns when it answers.
func (r *Registry) Start(t testing.TB) {
	t.Helper()
	runners, err := filepath.Glob(filepath.Join(r.dir, "*-runner.jar"))
	if err != nil || len(runners) != 1 {
		t.Fatalf("%d programs in the archive, %v", len(runners), err)
	}
	host, port, _ := net.SplitHostPort(r.address)
	cmd := exec.Command("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", runners[0])
	cmd.Env = append(os.Environ(), "QUARKUS_HTTP_HOST="+host, "QUARKUS_HTTP_PORT="+port)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, &r.output, &r.output
	if r.process, err = process.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err = poll.Until(ctx, 100*time.Millisecond, startTimeout, func() error { return r.answers(ctx) })
	if err != nil {
		r.Stop()
		t.Fatalf("the schema registry does not answer: %v\n%s", err, r.output.String())
	}
}

func (r *Registry) answers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/subjects", nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close() // nothing of it is read
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// Stop ends the registry, which loses its schemas. It does nothing if the registry does not run.
func (r *Registry) Stop() {
	if r.process != nil {
		_ = r.process.Kill()
		r.process = nil
	}
}
