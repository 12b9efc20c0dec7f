package actor

import (
	"bytes"
	"net/url"
	"strconv"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/audit"
)

const (
	maxItems = 10_000 // objects of a deletecollection that are read
	// maxParameters is a number of URI parameters that no API server ignores. Go ignores all if there are 10,000.
	maxParameters = 5_000
)

// scanned contains what the join requires of an audit event. All bytes alias the event, except decoded strings.
type scanned struct {
	level, uri, userAgent, impersonated   []byte
	groups, impersonatedGroups, sourceIPs [][]byte
	truncated, forbidden                  bool // by annotations
	code                                  uint64
	deletedUID                            []byte // responseStatus.details.uid
	request                               requestBody
	object                                meta
	list                                  []meta // items, or the objects in the rows of a table
	listed, more                          bool   // there is a list; it has more objects than were read
	spec, specFinalizers                  bool   // a Namespace in the response has a spec, and finalizers there
}

// requestBody is what requestObject contains.
type requestBody struct {
	present, dryRun bool
	version         uint64
	directives      bool   // it is a strategic merge patch with directives, so version may have no effect
	uid             []byte // preconditions.uid
}

// meta is what an object's metadata contains.
type meta struct {
	uid                 []byte
	version             uint64
	deleted, finalizers bool
	grace               bool // deletionGracePeriodSeconds is greater than 0
}

// emptied reports whether an object in this state does not exist any more. API servers delete it instead of storing it.
func (m *meta) emptied() bool { return m.deleted && !m.finalizers && !m.grace }

// scan reads an audit event in one pass, except small values. Of equal keys, the last one counts.
func (s *scanned) scan(e *audit.Event) {
	*s = scanned{
		groups: s.groups[:0], impersonatedGroups: s.impersonatedGroups[:0], sourceIPs: s.sourceIPs[:0], list: s.list[:0],
	}
	w := jsonscan.Open(e.Raw, 0, '{')
	for w.Next() {
		switch string(w.Key) {
		case "level":
			s.level = w.Text()
		case "requestURI":
			s.uri = w.Text()
		case "userAgent":
			s.userAgent = w.Text()
		case "user":
			s.groups = texts(jsonscan.Member(w.Value(), "groups"), s.groups)
		case "impersonatedUser":
			user := w.Value()
			s.impersonated = jsonscan.Text(jsonscan.Member(user, "username"))
			s.impersonatedGroups = texts(jsonscan.Member(user, "groups"), s.impersonatedGroups)
		case "sourceIPs":
			s.sourceIPs = texts(w.Value(), s.sourceIPs)
		case "annotations":
			annotations := w.Value()
			s.truncated = jsonscan.Member(annotations, "audit.k8s.io/truncated") != nil
			s.forbidden = string(jsonscan.Member(annotations, "authorization.k8s.io/decision")) == `"forbid"`
		case "responseStatus":
			status := w.Value()
			s.code, _ = strconv.ParseUint(string(jsonscan.Member(status, "code")), 10, 32)
			s.deletedUID = jsonscan.Text(jsonscan.Member(jsonscan.Member(status, "details"), "uid"))
		case "requestObject":
			w.Leave(s.request.scan(e.Raw, w.Pos))
		case "responseObject":
			w.Leave(s.scanResponse(e.Raw, w.Pos, e))
		default:
			w.Skip()
		}
	}
}

func texts(array []byte, to [][]byte) [][]byte {
	to = to[:0]
	w := jsonscan.Open(array, 0, '[')
	for _, value := range w.All {
		to = append(to, jsonscan.Text(value))
	}
	return to
}

// scan reads a requestObject, which for patches is what the client sent. As DeleteOptions it has dryRun and
// preconditions; an Eviction has them in deleteOptions.
func (r *requestBody) scan(b []byte, i int) (end int) {
	*r = requestBody{present: true}
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		switch r.directives = r.directives || isDirective(w.Key); string(w.Key) {
		case "metadata":
			r.version = 0
			m := jsonscan.Open(b, w.Pos, '{')
			for m.Next() {
				if r.directives = r.directives || isDirective(m.Key); string(m.Key) == "resourceVersion" {
					r.version = version(m.Text())
				} else {
					m.Skip()
				}
			}
			w.Leave(m.End())
		case "deleteOptions":
			options := w.Value()
			r.dryRun = !isEmpty(jsonscan.Member(options, "dryRun"))
			r.uid = jsonscan.Text(jsonscan.Member(jsonscan.Member(options, "preconditions"), "uid"))
		case "dryRun":
			r.dryRun = !isEmpty(w.Value())
		case "preconditions":
			r.uid = jsonscan.Text(jsonscan.Member(w.Value(), "uid"))
		default:
			w.Skip()
		}
	}
	return w.End()
}

// isDirective reports whether a key of a strategic merge patch is not a field, such as $patch or $retainKeys.
func isDirective(key []byte) bool { return len(key) > 0 && key[0] == '$' }

// scanResponse reads a responseObject: an object, a list, or a table, which has its objects in rows. Only
// deletecollection is answered with several objects.
func (s *scanned) scanResponse(b []byte, i int, e *audit.Event) (end int) {
	limit := 1
	if e.Verb == deleteCollection {
		limit = maxItems
	}
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		switch key := string(w.Key); {
		case key == "metadata":
			s.object, end = scanMeta(b, w.Pos)
			w.Leave(end)
		case key == "rows" || key == "items":
			s.list, s.listed, s.more = s.list[:0], true, false
			l := jsonscan.Open(b, w.Pos, '[')
			for _, entry := range l.All {
				if s.more = len(s.list) == limit; s.more {
					continue
				}
				if key == "rows" {
					entry = jsonscan.Member(entry, "object")
				}
				m, _ := scanMeta(jsonscan.Member(entry, "metadata"), 0)
				s.list = append(s.list, m)
			}
			w.Leave(l.End())
		case key == "spec" && e.Object.Resource == "namespaces":
			s.spec = true
			s.specFinalizers = !isEmpty(jsonscan.Member(w.Value(), "finalizers"))
		default:
			w.Skip()
		}
	}
	return w.End()
}

func scanMeta(b []byte, i int) (m meta, end int) {
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		switch string(w.Key) {
		case "uid":
			m.uid = w.Text()
		case "resourceVersion":
			m.version = version(w.Text())
		case "deletionTimestamp":
			m.deleted = string(w.Value()) != "null"
		case "deletionGracePeriodSeconds":
			m.grace = string(w.Value()) != "0"
		case "finalizers":
			m.finalizers = !isEmpty(w.Value())
		default:
			w.Skip()
		}
	}
	return m, w.End()
}

// version returns the number that API servers compare. 0: they ignore the resourceVersion, or reject it.
func version(text []byte) uint64 {
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// isEmpty reports whether a value is missing, null or an array without elements.
func isEmpty(value []byte) bool {
	w := jsonscan.Open(value, 0, '[')
	return !w.Next()
}

// dryRun says whether a request was a dry run: no, yes, or doubtful, because API servers differ.
type dryRun uint8

const (
	notDry dryRun = iota
	dry
	maybeDry
)

// dryRunOf reads the parameters of a URI as API servers do: they ignore those that are not well-formed, and all of them
// if there are too many.
func dryRunOf(uri []byte) dryRun {
	_, query, _ := bytes.Cut(uri, []byte("?"))
	for pair := range bytes.SplitSeq(query, []byte("&")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		if !bytes.Equal(unescape(key), []byte("dryRun")) || unescape(value) == nil || bytes.Contains(pair, []byte(";")) {
			continue
		}
		if bytes.Count(query, []byte("&")) >= maxParameters {
			return maybeDry
		}
		return dry
	}
	return notDry
}

// unescape returns nil if the text is not well-formed.
func unescape(text []byte) []byte {
	if !bytes.ContainsAny(text, "%+") {
		return text
	}
	s, err := url.QueryUnescape(string(text))
	if err != nil {
		return nil
	}
	return []byte(s)
}
