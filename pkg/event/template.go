package event

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Escape specifies how a template escapes values.
type Escape uint8

const (
	// EscapeNone inserts values unchanged. It is used for Kafka keys.
	EscapeNone Escape = iota
	// EscapeSubject converts each value to one token of a NATS subject. In a group, '.' becomes '_' (group names never
	// contain '_'). In other values, characters that a token cannot contain are percent-encoded. An empty value becomes
	// "_", and the core group becomes "core".
	EscapeSubject
	// EscapeTopic converts each value to characters that a Kafka topic name can contain ([a-zA-Z0-9._-]). Other characters
	// become '-'. An empty value becomes "_", and the core group becomes "core".
	EscapeTopic
	// EscapeKey converts each value to one token of a key in a NATS key-value bucket. It is like EscapeSubject, but
	// characters that a key cannot contain become '=' and two hexadecimal digits.
	EscapeKey
)

// variable is a placeholder in a template, such as {namespace}.
type variable struct {
	name  string
	value func(*Message) string
}

func variables() []variable {
	return []variable{
		{"cluster", func(m *Message) string { return m.Cluster }},
		{"group", func(m *Message) string { return m.Resource.Group }},
		{"version", func(m *Message) string { return m.Resource.Version }},
		{"resource", func(m *Message) string { return m.Resource.Resource }},
		{"kind", func(m *Message) string { return m.Identity.Kind() }},
		{"namespace", func(m *Message) string { return m.Identity.Namespace }},
		{"name", func(m *Message) string {
			if m.Type.IsControl() {
				return controlNamePrefix + m.Type.String()
			}
			return m.Identity.Name
		}},
		{"uid", func(m *Message) string { return string(m.Identity.UID) }},
		{"operation", func(m *Message) string { return m.Type.String() }},
	}
}

func names(all []variable) (names []string) {
	for _, v := range all {
		names = append(names, v.name)
	}
	return names
}

// Template is a compiled string with {variables}, which are replaced by values from a message. It is immutable.
type Template struct {
	text   string
	escape Escape
	parts  []templatePart
}

type templatePart struct {
	literal  string
	variable variable // used if literal is empty
}

// ParseTemplate compiles a template. Its errors name the place in the text.
func ParseTemplate(text string, escape Escape) (*Template, error) {
	t := &Template{text: text, escape: escape}
	fail := func(offset int, format string, args ...any) (*Template, error) {
		return nil, fmt.Errorf("template %q, character %d: %s", text, offset+1, fmt.Sprintf(format, args...))
	}
	if text == "" {
		return fail(0, "it is empty")
	}
	for rest := text; rest != ""; {
		offset := len(text) - len(rest)
		literal, after, opened := strings.Cut(rest, "{")
		if k := strings.IndexByte(literal, '}'); k >= 0 {
			return fail(offset+k, "'}' has no '{'")
		}
		if k := strings.IndexFunc(literal, func(r rune) bool { return !escape.allowsLiteral(r) }); k >= 0 {
			return fail(offset+k, "%q is not allowed in a %s", literal[k:k+1], escape.place())
		}
		if literal != "" {
			t.parts = append(t.parts, templatePart{literal: literal})
		}
		if !opened {
			break
		}
		offset += len(literal)
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return fail(offset, "'{' has no '}'")
		}
		all := variables()
		k := slices.Index(names(all), name)
		if k < 0 {
			return fail(offset, "there is no variable %q; the variables are %s", name, strings.Join(names(all), ", "))
		}
		t.parts = append(t.parts, templatePart{variable: all[k]})
		rest = after
	}
	if (escape == EscapeSubject || escape == EscapeKey) && slices.Contains(strings.Split(text, "."), "") {
		return fail(0, "a subject cannot have an empty token (two dots in a row, or a dot at the beginning or end)")
	}
	return t, nil
}

func (e Escape) place() string {
	return [...]string{"text", "NATS subject", "Kafka topic name", "key of a NATS bucket"}[e]
}

// allowsLiteral reports whether the text between the variables can contain r.
func (e Escape) allowsLiteral(r rune) bool {
	// The subjects of a bucket begin with $KV.
	further := [...]string{EscapeSubject: ".%", EscapeTopic: "", EscapeKey: ".=$"}
	return e == EscapeNone || r < 0x7f && (e.isPlain(byte(r)) || strings.ContainsRune(further[e], r))
}

// isPlain reports whether a value can contain c unescaped. The escape character itself is also escaped, which makes the
// encoding reversible.
func (e Escape) isPlain(c byte) bool {
	if e == EscapeSubject {
		return c > ' ' && c < 0x7f && strings.IndexByte(".*>%", c) < 0
	}
	others := "._-"
	if e == EscapeKey {
		others = "/_-"
	}
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(others, c) >= 0
}

// String returns the source text of the template.
func (t *Template) String() string { return t.text }

// Uses reports whether the template contains {variable}.
func (t *Template) Uses(variable string) bool {
	return slices.ContainsFunc(t.parts, func(p templatePart) bool { return p.variable.name == variable })
}

// Wildcard returns a NATS subject filter that matches all subjects that the template can produce. Every token that
// contains a variable is replaced by the wildcard "*".
func (t *Template) Wildcard() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(cmp.Or(p.literal, "*"))
	}
	tokens := strings.Split(b.String(), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// Expand replaces the variables by values from m. For a control event, {namespace} is empty and {name} is "_gap",
// "_synced" or "_progress".
func (t *Template) Expand(m *Message) string {
	var buf [160]byte
	return string(t.Append(buf[:0], m))
}

// Append appends the result of Expand to dst.
func (t *Template) Append(dst []byte, m *Message) []byte {
	for _, p := range t.parts {
		if p.literal != "" {
			dst = append(dst, p.literal...)
		} else {
			dst = t.escape.appendValue(dst, p.variable.name, p.variable.value(m))
		}
	}
	return dst
}

// Encode returns the escaped form of value, which must not be empty.
func (e Escape) Encode(value string) string { return string(e.appendValue(nil, "", value)) }

func (e Escape) appendValue(dst []byte, variable, value string) []byte {
	if e == EscapeNone {
		return append(dst, value...)
	}
	if value == "" {
		if variable == "group" {
			return append(dst, "core"...)
		}
		return append(dst, '_')
	}
	for i := range len(value) {
		switch c := value[i]; {
		case variable == "group" && c == '.' && e != EscapeTopic:
			dst = append(dst, '_')
		case e.isPlain(c):
			dst = append(dst, c)
		case e == EscapeTopic:
			dst = append(dst, '-')
		case e == EscapeSubject:
			dst = fmt.Appendf(dst, "%%%02X", c)
		default:
			dst = fmt.Appendf(dst, "=%02X", c)
		}
	}
	return dst
}
