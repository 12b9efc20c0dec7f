package chart

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// process is a running bridge.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan error
}

func startBridge(t *testing.T, env []corev1.EnvVar, args []string) *process {
	t.Helper()
	p := &process{log: filepath.Join(t.TempDir(), "log"), ended: make(chan error, 1)}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(tools.bridge, args...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = childAttr()
	for _, e := range env {
		p.cmd.Env = append(p.cmd.Env, e.Name+"="+e.Value)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // if it has not ended by itself
		<-p.ended                //nolint:errcheck // it was told to end
		if t.Failed() {
			text, _ := os.ReadFile(p.log)
			t.Logf("the bridge's log:\n%s", text)
		}
	})
	return p
}

func (p *process) waitReady(t *testing.T, address string) {
	t.Helper()
	eventually(t, func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(string(body))
		}
		return err
	})
	http.DefaultClient.CloseIdleConnections()
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		t.Errorf("the bridge ended with %v", err)
	}
}

// eventually calls check until it returns nil, for at most three minutes.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	const limit = 3 * time.Minute
	deadline, tick := time.NewTimer(limit), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("after %s: %v", limit, err)
		case <-tick.C:
		}
	}
}
