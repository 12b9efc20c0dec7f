package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
)

func (v *validator) nats(path string, n *NATS) {
	switch {
	case n.URL == "" && n.Embedded == nil && !v.confused[path]:
		v.report(path, "has no server", "add url: nats://127.0.0.1:4222, or embedded: {} for a server in the bridge")
	case n.URL != "" && n.Embedded != nil:
		v.report(path+".embedded", "is given besides url", "keep one of them")
	}
	for _, server := range n.Servers() {
		v.serverURL(path+".url", server)
	}
	if e := n.Embedded; e != nil && !v.broken[path+".embedded"] {
		v.address(path+".embedded.listen", e.Listen, false, "write 127.0.0.1:4222")
		v.notEmpty(path+".embedded.storeDir", e.StoreDir, "write ./data/nats")
		if !n.Stream.Create {
			v.report(path+".stream.create", "is not true, and an embedded server begins without a stream", "write stream: {create: true}")
		}
	}
	template := v.template(path+".subject", n.Subject, n.Escape())
	v.stream(path+".stream", &n.Stream, template)
	v.natsMirror(path, n, template)

	auth := v.given(path, "credentialsFile", "nkeyFile", "tokenFile", "user")
	if len(auth) > 1 {
		v.report(path+"."+auth[1], "is given besides "+auth[0], "keep one of them")
	}
	v.together(path, "user", "passwordFile")
	v.together(path+".tls", "certFile", "keyFile")
}

// serverURL checks one server. A URL with credentials is not repeated in the message.
func (v *validator) serverURL(path, text string) {
	if strings.Contains(text, "@") {
		v.report(path, "has credentials in it: secrets do not stand in this file", "remove what is in front of the @, and use user and passwordFile, tokenFile, nkeyFile or credentialsFile")
		return
	}
	u, err := url.Parse(text)
	const remedy = "write it as nats://host:4222; separate several by commas"
	switch {
	case err != nil || u.Host == "":
		v.report(path, strconv.Quote(shorten(text))+" is no URL of a server", remedy)
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		v.report(path, strconv.Quote(shorten(u.Scheme))+" is no scheme of NATS", "write nats, tls, ws or wss")
	case strings.Trim(u.Path, "/") != "" && !strings.HasPrefix(u.Scheme, "ws") || u.RawQuery != "" || u.Fragment != "":
		v.report(path, strconv.Quote(shorten(text))+" has more than scheme, host and port", remedy)
	default:
		v.address(path, net.JoinHostPort(u.Hostname(), portOf(u)), true, remedy)
	}
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "ws":
		return "80"
	case u.Scheme == "wss":
		return "443"
	default:
		return "4222"
	}
}

func (v *validator) stream(path string, s *Stream, template *event.Template) {
	// The server's rule for names, which become folders too.
	if s.Name == "" || len(s.Name) > 255 || strings.ContainsFunc(s.Name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`.*>/\`, r)
	}) {
		v.report(path+".name", strconv.Quote(shorten(s.Name))+" can't be the name of a stream", "use letters, digits, - and _")
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		v.report(path+".duplicateWindow", fmt.Sprintf("%v is longer than maxAge, %v", s.DuplicateWindow, s.MaxAge), "make it at most as long")
	}
	valid := !v.broken[path+".subjects"]
	for i, subject := range s.Subjects {
		at := fmt.Sprintf("%s.subjects[%d]", path, i)
		valid = valid && !v.broken[at]
		if problem := subjectProblem(subject); problem != "" {
			v.report(at, strconv.Quote(shorten(subject))+" "+problem, "write it as k8s.> or k8s.*.pods.>")
			valid = false
			continue
		}
		for j, earlier := range s.Subjects[:i] {
			if overlap(subject, earlier) {
				v.report(at, fmt.Sprintf("%q overlaps with subjects[%d], %q", shorten(subject), j, shorten(earlier)), "remove one of them")
			}
		}
	}
	if template == nil || !s.Create || !valid || len(s.Subjects) == 0 {
		return
	}
	made := template.Wildcard()
	if !slices.ContainsFunc(s.Subjects, func(subject string) bool { return covers(subject, made) }) {
		v.report(path+".subjects", fmt.Sprintf("the stream would not take what subject makes, %q", shorten(made)), "add "+strconv.Quote(shorten(made))+", or remove subjects to get just that")
	}
}

// subjectProblem says what is wrong with a subject of a stream; empty if nothing is.
func subjectProblem(subject string) string {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return "has an empty token"
		case token == ">" && i < len(tokens)-1:
			return "has > before its end"
		case token != ">" && token != "*" && strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '*' || r == '>' }):
			return "has a space or a wildcard inside of a token"
		}
	}
	if overlap(subject, "$JS.API.>") {
		return "overlaps with the subjects of JetStream itself"
	}
	return ""
}

// covers reports whether all that matches subject, which has no ">", matches pattern.
func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case i >= len(s):
			return false
		case token == ">":
			return true
		case token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// overlap reports whether a subject can match both patterns.
func overlap(a, b string) bool {
	p, q := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(p), len(q)) {
		switch {
		case p[i] == ">" || q[i] == ">":
			return true
		case p[i] != q[i] && p[i] != "*" && q[i] != "*":
			return false
		}
	}
	return len(p) == len(q)
}

func (v *validator) kafka(path string, k *Kafka) {
	if len(k.Brokers) == 0 && v.has(path+".brokers") {
		v.report(path+".brokers", "is empty", "write [127.0.0.1:9092]")
	}
	for i, broker := range k.Brokers {
		v.address(fmt.Sprintf("%s.brokers[%d]", path, i), broker, true, "write host:9092, without a scheme")
	}
	topic := v.template(path+".topic", k.Topic, event.EscapeTopic)
	if topic != nil && k.Tombstones && topic.Uses("operation") {
		v.report(path+".topic", "has {operation} in it: with tombstones, a deletion would leave the object's state in another topic", "use "+defaulted[Kafka]().Topic)
	}
	v.kafkaKey(path, k, topic)
	v.together(path+".tls", "certFile", "keyFile")
	if v.has(path+".tls.enabled") && !k.TLS.Enabled && len(v.given(path+".tls", "caFile", "certFile", "keyFile", "serverName")) > 0 {
		v.report(path+".tls.enabled", "is false, but other keys of tls are given", "write true, or remove the others")
	}
	v.sasl(path+".sasl", &k.SASL)
}

func (v *validator) sasl(path string, s *SASL) {
	names := []string{"mechanism", "username", "passwordFile"}
	given := v.given(path, append(names, "region")...)
	if s.Mechanism == "AWS_MSK_IAM" {
		for _, name := range given {
			if name == "username" || name == "passwordFile" {
				v.report(path+"."+name, "is given besides mechanism AWS_MSK_IAM, which takes the credentials of the AWS environment", "remove it")
			}
		}
		return
	}
	if slices.Contains(given, "region") && !v.broken[path+".mechanism"] {
		v.report(path+".region", "is for mechanism AWS_MSK_IAM alone", "remove it, or write mechanism: AWS_MSK_IAM")
	}
	given = slices.DeleteFunc(given, func(name string) bool { return name == "region" })
	if len(given) == 0 || len(given) == 3 {
		return
	}
	for _, name := range names {
		if !slices.Contains(given, name) && !v.confused[path+"."+name] {
			v.report(path+"."+name, "is missing besides "+given[0], "give mechanism, username and passwordFile, or none of them")
		}
	}
}

// given is which of the keys are there with a value.
func (v *validator) given(path string, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		node := v.nodes[path+"."+name]
		return node == nil || node.Value == "" && !v.broken[path+"."+name]
	})
}

// together reports a key that is there without the other.
func (v *validator) together(path, a, b string) {
	given := v.given(path, a, b)
	if len(given) != 1 {
		return
	}
	missing := a
	if given[0] == a {
		missing = b
	}
	if !v.confused[path+"."+missing] {
		v.report(path+"."+missing, "is missing besides "+given[0], "give both of them, or none")
	}
}

// conflicts reports sinks that would harm each other.
func (v *validator) conflicts(sinks []Sink) {
	for i := range sinks {
		for j := range i {
			if v.hasServer(i, &sinks[i]) && v.hasServer(j, &sinks[j]) {
				v.natsConflict(fmt.Sprintf("sinks[%d].nats", i), fmt.Sprintf("sinks[%d]", j), sinks[i].NATS, sinks[j].NATS)
			}
		}
	}
}

// hasServer reports whether it is known which NATS server the sink delivers to.
func (v *validator) hasServer(i int, s *Sink) bool {
	path := fmt.Sprintf("sinks[%d].nats", i)
	return s.NATS != nil && !v.broken[path+".url"] && !v.broken[path+".embedded"]
}

func (v *validator) natsConflict(path, other string, a, b *NATS) {
	if a.Embedded != nil && b.Embedded != nil {
		if filepath.Clean(a.Embedded.StoreDir) == filepath.Clean(b.Embedded.StoreDir) {
			v.report(path+".embedded.storeDir", "is the folder of the embedded server of "+other+" too", "give it another, or let this sink use url to reach that server")
		}
		if slices.ContainsFunc(hostsOf(a), func(host string) bool { return slices.Contains(hostsOf(b), host) }) {
			v.report(path+".embedded.listen", "is the address of the embedded server of "+other+" too", "give it another, or let this sink use url to reach that server")
		}
		return
	}
	if !slices.ContainsFunc(hostsOf(a), func(host string) bool { return slices.Contains(hostsOf(b), host) }) {
		return
	}
	if name := a.streamName(); name == b.streamName() {
		v.report(path+".stream.name", fmt.Sprintf("%q is the stream of %s too: it would take the events of one sink for repetitions of the other's", shorten(name), other), "use two streams, with subjects that do not overlap")
		return
	}
	if !a.Stream.Create || !b.Stream.Create {
		return
	}
	for _, p := range v.subjectsOf(a) {
		for _, q := range v.subjectsOf(b) {
			if overlap(p, q) {
				v.report(path+".stream.subjects", fmt.Sprintf("%q overlaps with %q, a subject of the stream of %s: a server takes a subject into one stream only", shorten(p), shorten(q), other), "begin the subjects of each stream with a word of its own")
				return
			}
		}
	}
}

// hostsOf is the servers as host:port, in one spelling. A port 0 is none that another could have.
func hostsOf(n *NATS) []string {
	var hosts []string
	add := func(host, port string) {
		if port != "0" {
			hosts = append(hosts, net.JoinHostPort(canonicalHost(host), port))
		}
	}
	if n.Embedded != nil {
		if host, port, err := net.SplitHostPort(n.Embedded.Listen); err == nil {
			add(host, port)
		}
		return hosts
	}
	for _, server := range n.Servers() {
		if u, err := url.Parse(server); err == nil {
			add(u.Hostname(), portOf(u))
		}
	}
	return hosts
}

// subjectsOf is the subjects of the stream as it would be created.
func (v *validator) subjectsOf(n *NATS) []string {
	if n.Bucket != "" {
		return []string{bucketSubjects + n.Bucket + ".>"}
	}
	if len(n.Stream.Subjects) > 0 {
		return n.Stream.Subjects
	}
	template, err := event.ParseTemplate(n.Subject, event.EscapeSubject)
	if err != nil {
		return nil
	}
	return []string{template.Wildcard()}
}
