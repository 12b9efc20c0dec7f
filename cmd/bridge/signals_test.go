package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/deltabridge/deltabridge/test/natsserver"
)

// started is a process of the bridge.
type started struct {
	*exec.Cmd

	log *bufio.Scanner
}

// runFile writes a configuration file with which `bridge run` starts, although it finds no API server. It returns the
// file and its text.
func runFile(t *testing.T, address string) (file, text string) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := writeFile(t, filepath.Join(dir, "kubeconfig"), "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\n"+
		"users: [{name: u, user: {}}]\n")
	text = "kubeconfig: " + kubeconfig + "\nhttp: {listen: \"" + address + "\"}\n" +
		"state: {path: " + filepath.Join(dir, "state") + "}\nsinks: [{name: lines, stdout: {}}]\n"
	return writeFile(t, filepath.Join(dir, "bridge.yaml"), text), text
}

// startProcess starts the bridge in a process. terminal, if it is not nil, is its standard input.
func startProcess(t *testing.T, terminal *os.File, args ...string) started {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hangups := make(chan os.Signal, 1) // if the tests run under nohup, the process would ignore SIGHUP too
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	if terminal != nil {
		cmd.Stdin, cmd.SysProcAttr = terminal, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return started{cmd, bufio.NewScanner(log)}
}

// startRun starts `bridge run` with a configuration file. terminal, if it is not nil, is its standard input.
func startRun(t *testing.T, terminal *os.File) (s started, file, text string) {
	t.Helper()
	file, text = runFile(t, "127.0.0.1:0")
	s = startProcess(t, terminal, "run", "--config", file)
	s.expect(t, `msg="starting bridge" version=dev config=`+file)
	return s, file, text
}

// expect reads the log up to a line with some text.
func (s started) expect(t *testing.T, text string) {
	t.Helper()
	for s.log.Scan() {
		if strings.Contains(s.log.Text(), text) {
			return
		}
	}
	t.Fatalf("the process ended without %s in its log: %v", text, s.Wait())
}

// end reads the rest of the log and expects the exit code 0.
func (s started) end(t *testing.T) {
	t.Helper()
	for s.log.Scan() {
		t.Log(s.log.Text())
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the process ended with %v", err)
	}
}

// A daemon reads its configuration again after SIGHUP. It goes on with the earlier one if the file has a mistake.
func TestHangup(t *testing.T) {
	s, file, text := startRun(t, nil)
	for _, change := range []struct{ append, want string }{
		{"", `msg="SIGHUP received" answer="the configuration has not changed"`},
		{"shutdownTimeout: 1h1\n", "changed configuration refused, continuing with the earlier one"},
		{"shutdownTimeout: 1h\n", "changed configuration is in use"},
	} {
		writeFile(t, file, text+change.append)
		if err := s.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		s.expect(t, change.want)
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.end(t)
}

// If the terminal of `bridge run` is closed, the bridge ends in good order, although the kernel and the shell both send
// SIGHUP.
func TestClosedTerminal(t *testing.T) {
	control, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	s, _, _ := startRun(t, terminal)
	if err := control.Close(); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "msg=stopping")
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.end(t)
}

// With --wait-for-config, the bridge starts when its file is corrected, and reports the reason until then. Without, it
// ends.
func TestWaitForConfig(t *testing.T) {
	address := natsserver.FreePort(t)
	file, text := runFile(t, address)
	writeFile(t, file, text+"shutdownTimeout: 1h1\n")
	if _, err := command(t, "run", "--config", file); exitCode(err) != exitConfig {
		t.Errorf("without the flag: %v", err)
	}
	s := startProcess(t, nil, "run", "--wait-for-config", "--config", file)
	s.expect(t, `level=ERROR msg="configuration refused, waiting for a corrected file" file=`+file)
	if code, body := getPage("http://" + address + "/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "shutdownTimeout") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	writeFile(t, file, text)
	if err := s.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.expect(t, `msg="starting bridge" version=dev config=`+file)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.end(t)
}
