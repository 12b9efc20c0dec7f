package event

import (
	"fmt"
	"slices"
	"strings"
)

// Escape is how the values in a template are escaped.
type Escape uint8

const (
	// EscapeNone inserts values as they are: Kafka keys.
	EscapeNone Escape = iota
	// EscapeSubject makes each value one NATS subject token: dots of a group become '_' (a group name has no '_' of
	// its own), in other values what a token can't hold is percent-encoded; an empty value is "_", the core group "core".
	EscapeSubject
	// EscapeTopic makes each value fit for a Kafka topic name ([a-zA-Z0-9._-]); other characters become '-'. An
	// empty value is "_", the core group "core".
	EscapeTopic
	// EscapeKey makes each value one token of a key in a NATS key-value bucket: as EscapeSubject, but what a key can't
	// hold is '=' and two hexadecimal digits.
	EscapeKey
)

// variables returns the names that a template may contain.
func variables() []string {
	return []string{"cluster", "group", "version", "resource", "kind", "namespace", "name", "uid", "operation"}
}

// Template is a compiled string with {variables} that are replaced by values of a message. It is immutable.
type Template struct {
	text   string
	escape Escape
	parts  []templatePart
}

type templatePart struct {
	literal  string
	variable string // used if literal is empty
}

// TemplateError is a mistake in a template.
type TemplateError struct {
	Text   string
	Offset int // bytes from the start of Text
	Reason string
}

func (e *TemplateError) Error() string {
	return fmt.Sprintf("template %q, character %d: %s", e.Text, e.Offset+1, e.Reason)
}

// ParseTemplate compiles text. Its error is a *TemplateError.
func ParseTemplate(text string, escape Escape) (*Template, error) {
	t := &Template{text: text, escape: escape}
	fail := func(offset int, format string, args ...any) (*Template, error) {
		return nil, &TemplateError{text, offset, fmt.Sprintf(format, args...)}
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
		if !slices.Contains(variables(), name) {
			return fail(offset, "there is no variable %q; there are %s", name, strings.Join(variables(), ", "))
		}
		t.parts = append(t.parts, templatePart{variable: name})
		rest = after
	}
	if (escape == EscapeSubject || escape == EscapeKey) && slices.Contains(strings.Split(text, "."), "") {
		return fail(0, "a subject cannot have an empty token (two dots, or a dot at an end)")
	}
	return t, nil
}

func (e Escape) place() string {
	return [...]string{"text", "NATS subject", "Kafka topic name", "key of a NATS bucket"}[e]
}

func (e Escape) allowsLiteral(r rune) bool {
	switch e {
	case EscapeSubject:
		return r > ' ' && r < 0x7f && r != '*' && r != '>'
	case EscapeTopic:
		return isTopicByte(byte(r)) && r < 0x7f
	case EscapeKey: // the subjects of a bucket begin with $KV
		return r < 0x7f && (isKeyByte(byte(r)) || r == '.' || r == '=' || r == '$')
	default:
		return true
	}
}

// String returns the text of the template.
func (t *Template) String() string { return t.text }

// Uses reports whether the template contains {variable}.
func (t *Template) Uses(variable string) bool {
	return slices.ContainsFunc(t.parts, func(p templatePart) bool { return p.variable == variable })
}

// Wildcard is the template with each variable replaced by the NATS wildcard "*": the subjects that it can make.
// A token that holds more than a variable becomes "*" as a whole.
func (t *Template) Wildcard() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.variable != "" {
			b.WriteByte('*')
		} else {
			b.WriteString(p.literal)
		}
	}
	tokens := strings.Split(b.String(), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// Expand replaces the variables by what m says. For a control event {namespace} is empty and {name} is "_gap" or
// "_synced".
func (t *Template) Expand(m *Message) string {
	var buf [160]byte
	return string(t.Append(buf[:0], m))
}

// Append appends what Expand returns to dst.
func (t *Template) Append(dst []byte, m *Message) []byte {
	for _, p := range t.parts {
		if p.variable == "" {
			dst = append(dst, p.literal...)
			continue
		}
		dst = t.escape.appendValue(dst, p.variable, m.variable(p.variable))
	}
	return dst
}

func (m *Message) variable(name string) string {
	switch name {
	case "cluster":
		return m.Cluster
	case "group":
		return m.Resource.Group
	case "version":
		return m.Resource.Version
	case "resource":
		return m.Resource.Resource
	case "kind":
		return m.Identity.Kind()
	case "namespace":
		return m.Identity.Namespace
	case "name":
		if m.Type.IsControl() {
			return controlNamePrefix + m.Type.String()
		}
		return m.Identity.Name
	case "uid":
		return string(m.Identity.UID)
	default: // operation
		return m.Type.String()
	}
}

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
		case e == EscapeTopic && !isTopicByte(c):
			dst = append(dst, '-')
		case (e == EscapeSubject || e == EscapeKey) && variable == "group" && c == '.':
			dst = append(dst, '_')
		case e == EscapeSubject && !isTokenByte(c):
			dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		case e == EscapeKey && !isKeyByte(c):
			dst = append(dst, '=', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

const hexDigits = "0123456789ABCDEF"

// isTokenByte: what a subject token may hold as it is. '%' is encoded too, which makes the encoding reversible.
func isTokenByte(c byte) bool {
	return c > ' ' && c < 0x7f && c != '.' && c != '*' && c != '>' && c != '%'
}

// isKeyByte: what a token of a key may hold as it is. '=' is encoded too, which makes the encoding reversible.
func isKeyByte(c byte) bool { return c != '.' && isTopicByte(c) || c == '/' }

func isTopicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
