package listwatch

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace, UID, ResourceVersion string
		Annotations                           map[string]string
	}
	Data map[string]string
}

func open(t *testing.T, url string) io.Reader {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	return response.Body
}

func serve(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	s := New(o)
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections() // watches never end by themselves
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, server.URL + Path
}

func TestListInPages(t *testing.T) {
	_, url := serve(t, Options{Objects: 25, Size: smallest})
	token, names := "", []string{}
	for page := 0; page == 0 || token != ""; page++ {
		var list struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []object
		}
		if err := json.NewDecoder(open(t, url+"?limit=10&continue="+token)).Decode(&list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			names = append(names, o.Metadata.Name)
		}
		if token = list.Metadata.Continue; list.Metadata.ResourceVersion != fmt.Sprint(int64(Base)) {
			t.Errorf("resourceVersion %s", list.Metadata.ResourceVersion)
		}
	}
	var want []string
	for n := range 25 {
		want = append(want, fmt.Sprintf("settings-%06d", n))
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

const smallest = 1500

// A watch-list, the events that follow it, and a second watch that goes on in the middle.
func TestWatch(t *testing.T) {
	s, url := serve(t, Options{Objects: 2, Events: 6, Keys: 3, Size: smallest})
	first := bufio.NewReader(open(t, url+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true"))
	second := bufio.NewReader(open(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", url, int64(Base)+4)))
	read := func(r *bufio.Reader, count int) (lines []string) {
		for range count {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Type   string
				Object object
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, strings.TrimSpace(strings.Join([]string{
				e.Type,
				e.Object.Metadata.Name,
				e.Object.Metadata.ResourceVersion,
				e.Object.Metadata.Annotations["k8s.io/initial-events-end"],
			}, " ")))
			if e.Type != "BOOKMARK" && (len(line) < smallest || len(line) > smallest+100) {
				t.Errorf("an event of %d bytes", len(line))
			}
		}
		return lines
	}
	if diff := cmp.Diff([]string{
		"ADDED settings-000000 1000000", "ADDED settings-000001 1000001", "BOOKMARK  2000000 true",
	}, read(first, 3)); diff != "" {
		t.Error(diff)
	}
	s.Release()
	if diff := cmp.Diff([]string{
		"MODIFIED settings-000000 2000001", "MODIFIED settings-000001 2000002", "ADDED settings-000002 2000003",
		"MODIFIED settings-000000 2000004", "MODIFIED settings-000001 2000005", "MODIFIED settings-000002 2000006",
	}, read(first, 6)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(
		[]string{"MODIFIED settings-000001 2000005", "MODIFIED settings-000002 2000006"},
		read(second, 2),
	); diff != "" {
		t.Error(diff)
	}
}
