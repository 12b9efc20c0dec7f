package listwatch

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Base is the resourceVersion before the first event.
const Base = 2_000_000

// Options say what a Server serves.
type Options struct {
	Objects int // number of objects at the start
	Events  int // number of events after the release
	Keys    int // number of objects that the events change in turn; the first event of a new one adds it; 0 means Objects
	Size    int // approximate size of an object, in bytes of JSON
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	options  Options
	corpus   *corpus
	mux      *http.ServeMux
	once     sync.Once
	released chan struct{}
}

// New returns a server that sends no events before a POST to ReleasePath.
func New(options Options) *Server {
	if options.Keys == 0 {
		options.Keys = max(1, options.Objects)
	}
	s := &Server{options: options, corpus: newCorpus(options.Size), mux: http.NewServeMux(), released: make(chan struct{})}
	all := &leases{}
	s.mux.HandleFunc("POST "+leasesPath, all.write)
	s.mux.HandleFunc("PUT "+leasesPath+"/{name}", all.write)
	s.mux.HandleFunc("GET "+leasesPath+"/{name}", all.read)
	s.mux.HandleFunc("GET "+Path, s.configMaps)
	s.mux.HandleFunc("GET /api/v1/namespaces/"+Namespace+"/configmaps", s.configMaps)
	for path, document := range documents() {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, document) })
	}
	s.mux.HandleFunc("GET /", notFound)
	s.mux.HandleFunc("POST "+ReleasePath, func(w http.ResponseWriter, _ *http.Request) {
		s.Release()
		w.WriteHeader(http.StatusNoContent)
	})
	return s
}

// Paths of a Server.
const (
	Path        = "/api/v1/configmaps" // path of all objects
	ReleasePath = "/bench/release"     // POST: see Server.Release
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/" + Namespace + "/leases"
)

// documents are the constant answers, by path.
func documents() map[string]string {
	return map[string]string{
		"/version": `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`,
		"/api":     `{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}`,
		"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap",` +
			`"namespaced":true,"kind":"ConfigMap","verbs":["create","delete","get","list","patch","update","watch"]}]}`,
		"/api/v1/namespaces/kube-system": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system",` +
			`"uid":"9b2f6a1c-0000-4000-8000-000000000001","resourceVersion":"4"}}`,
	}
}

func notFound(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusNotFound, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"%s does not exist","reason":"NotFound","code":404}`, r.URL.Path))
}

func answer(w http.ResponseWriter, code int, document string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(document)) // ignore clients that have disconnected
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Release makes watches send the events. Further calls do nothing.
func (s *Server) Release() { s.once.Do(func() { close(s.released) }) }

func (s *Server) configMaps(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	if query.Get("watch") == "" || query.Get("watch") == "false" || query.Get("watch") == "0" {
		s.list(w, query.Get("limit"), query.Get("continue"))
		return
	}
	from := int64(Base)
	if v, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64); err == nil && v > Base {
		from = v
	}
	out := &stream{w: w, flusher: w.(http.Flusher), buf: make([]byte, 0, 2*streamBuffer)}
	out.flush() // so that the client knows that its watch is open
	if query.Get("sendInitialEvents") == "true" {
		s.initial(out)
	}
	s.follow(r.Context(), out, from)
}

// list writes one page. The continue token is the number of the next page's first object.
func (s *Server) list(w http.ResponseWriter, limit, token string) {
	first, _ := strconv.Atoi(token)
	size, _ := strconv.Atoi(limit)
	last := s.options.Objects
	next := ""
	if size > 0 && first+size < last {
		last = first + size
		next = fmt.Sprintf(`,"continue":"%d","remainingItemCount":%d`, last, s.options.Objects-last)
	}
	out := &stream{w: w, buf: make([]byte, 0, 2*streamBuffer)}
	out.buf = fmt.Appendf(
		out.buf,
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[`,
		int64(Base),
		next,
	)
	for n := first; n < last; n++ {
		if n > first {
			out.buf = append(out.buf, ',')
		}
		out.buf = s.corpus.appendObject(out.buf, n, s.createdAt(n), false)
		out.written()
	}
	out.buf = append(out.buf, "]}\n"...)
	out.flush()
}

// createdAt returns the resourceVersion of an object that exists at the start.
func (s *Server) createdAt(n int) int64 { return Base/2 + int64(n) }

// initial writes the objects and the bookmark at the end of the initial list.
func (s *Server) initial(out *stream) {
	for n := range s.options.Objects {
		out.buf = append(out.buf, `{"type":"ADDED","object":`...)
		out.buf = s.corpus.appendObject(out.buf, n, s.createdAt(n), true)
		out.buf = append(out.buf, "}\n"...)
		out.written()
	}
	out.buf = fmt.Appendf(
		out.buf,
		`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
		int64(Base),
	)
	out.flush()
}

// follow writes the events after a resourceVersion once they are released, and then waits until the client disconnects.
func (s *Server) follow(ctx context.Context, out *stream, from int64) {
	select {
	case <-s.released:
	case <-ctx.Done():
		return
	}
	for k := int(from - Base); k < s.options.Events && out.err == nil; k++ {
		kind := "MODIFIED"
		if k < s.options.Keys && k >= s.options.Objects {
			kind = "ADDED"
		}
		out.buf = append(out.buf, `{"type":"`...)
		out.buf = append(out.buf, kind...)
		out.buf = append(out.buf, `","object":`...)
		out.buf = s.corpus.appendObject(out.buf, k%s.options.Keys, Base+1+int64(k), true)
		out.buf = append(out.buf, "}\n"...)
		out.written()
	}
	out.flush()
	<-ctx.Done()
}

// streamBuffer is the size of a write.
const streamBuffer = 64 << 10

// stream buffers the body of a response.
type stream struct {
	w       http.ResponseWriter
	flusher http.Flusher // nil if the response is not streamed
	buf     []byte
	err     error
}

// written must be called after each append to buf. It writes the buffer if it is full.
func (s *stream) written() {
	if len(s.buf) >= streamBuffer {
		s.flush()
	}
}

func (s *stream) flush() {
	if s.err == nil {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
	if s.err == nil && s.flusher != nil {
		s.flusher.Flush()
	}
}

// Kubeconfig returns a kubeconfig for the server at url. caFile is its CA certificate; it may be empty.
func Kubeconfig(url, caFile string) string {
	ca := ""
	if caFile != "" {
		ca = ", certificate-authority: " + strconv.Quote(caFile)
	}
	return strings.TrimLeft(fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: %q%s}}]
users: [{name: bench, user: {token: bench}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
current-context: bench
`, url, ca), "\n")
}
