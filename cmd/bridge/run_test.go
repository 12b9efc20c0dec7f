package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// getPage returns the code 0 and the error if there is no response.
func getPage(url string) (code int, body string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	page, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(page)
}

// The server of --pprof prints its address, serves profiles there, and ends with the command.
func TestPprof(t *testing.T) {
	var out bytes.Buffer
	stop, err := servePprof(t.Context(), "127.0.0.1:0", &out)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	address, ok := strings.CutPrefix(strings.TrimSpace(out.String()), "pprof=")
	if !ok {
		t.Fatalf("printed %q", out.String())
	}
	get := func(path string) (code int, body string) { return getPage("http://" + address + path) }
	code, body := get("/debug/pprof/goroutine?debug=1")
	if code != http.StatusOK || !strings.Contains(body, "goroutine profile:") {
		t.Errorf("%d %.100s", code, body)
	}
	if code, _ := get("/metrics"); code != http.StatusNotFound {
		t.Errorf("something other than profiles: %d", code)
	}
	if _, err := servePprof(t.Context(), address, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--pprof: ") {
		t.Errorf("an address that is in use: %v", err)
	}
	stop()
	if code, body := get("/debug/pprof/"); code != 0 {
		t.Errorf("the server has not ended: %d %.100s", code, body)
	}
}

// claim changes nothing unless it knows which cluster this is.
func TestClaimMistakes(t *testing.T) {
	file := stateConfig(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", file+".none")
	for want, args := range map[string][]string{
		"--sink audit: there is no such sink; use one of lines": {"--config", file, "--sink", "audit"},
		"not in a Pod, and there is no kubeconfig":              {"--config", file},
		"no such file": {"--config", file + ".none"},
	} {
		if out, err := command(
			t,
			append([]string{"claim"}, args...)...); err == nil || !strings.Contains(err.Error(), want) ||
			out != "" {
			t.Errorf("%v: %q, %v, want %s", args, out, err, want)
		}
	}
}
