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

	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
)

// bridge is a running bridge.
type bridge struct {
	*process.Process

	log string // path
}

func startBridge(t *testing.T, env []corev1.EnvVar, args []string) bridge {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(tools.bridge, args...)
	cmd.Stderr = log
	for _, e := range env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	p, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill() // if it has not ended by itself
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the bridge's log:\n%s", text)
		}
	})
	return bridge{p, log.Name()}
}

func (p bridge) waitReady(t *testing.T, address string) {
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

func (p bridge) stop(t *testing.T) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("the bridge ended with %v", err)
	}
}

// eventually calls check until it returns nil, for at most three minutes.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	if err := poll.Until(t.Context(), 100*time.Millisecond, 3*time.Minute, check); err != nil {
		t.Fatal(err)
	}
}
