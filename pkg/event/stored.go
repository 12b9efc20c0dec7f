package event

import (
	"bytes"
	"strconv"
	"time"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// parse reads a header that AppendStored wrote. ok is false if the header contains something that few events have, such
// as a gap, a context or an escaped string. encoding/json, which takes several times as long, must then read it.
func (s *stored) parse(header []byte) (ok bool) {
	text := string(header) // all strings of the message share this allocation, because they have the same lifetime
	w := jsonscan.Open(header, 0, '{')
	for w.Next() {
		at, key := w.Pos, w.Key
		value := w.Value()
		switch field := s.field(string(key)).(type) {
		case *string:
			if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
				return false
			}
			*field = text[at+1 : at+len(value)-1]
		case *bool:
			*field = string(value) == "true"
		case *Type:
			number, err := strconv.ParseUint(text[at:at+len(value)], 10, 8)
			if err != nil {
				return false
			}
			*field = Type(number)
		case *time.Time:
			if field.UnmarshalJSON(value) != nil {
				return false
			}
		default:
			return false
		}
	}
	return w.End() == len(header)
}

// appendTo appends the header. ok is false if the header contains something that few events have: see parse.
func (s *stored) appendTo(dst []byte) (_ []byte, ok bool) {
	if s.Context != nil || s.GapInfo != nil {
		return dst, false
	}
	separator := byte('{')
	for _, name := range storedNames {
		begin := len(dst)
		dst = append(append(append(dst, separator, '"'), name...), '"', ':')
		empty := false
		switch field := s.field(name).(type) {
		case *string:
			if empty = *field == ""; !isPlain(*field) {
				return dst, false
			}
			dst = append(append(append(dst, '"'), *field...), '"')
		case *bool:
			empty = !*field
			dst = append(dst, "true"...)
		case *Type:
			dst = strconv.AppendUint(dst, uint64(*field), 10)
		case *time.Time:
			empty = field.IsZero()
			text, err := field.AppendText(append(dst, '"'))
			if err != nil {
				return dst, false
			}
			dst = append(text, '"')
		}
		if empty {
			dst = dst[:begin]
		} else {
			separator = ','
		}
	}
	return append(dst, '}'), true
}

// isPlain reports whether a JSON string with this value contains no escapes, and only ASCII.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// storedNames are the names of the fields that parse can read.
var storedNames = [...]string{ //nolint:gochecknoglobals // constant in all but name
	"t", "at", "rd", "c", "cu", "i", "f", "l", "ep", "h", "d", "if", "fi", "id", "pk", "pl", "s", "g", "v", "r",
	"av", "k", "ns", "n", "u", "rv", "m", "src", "pos",
}

// field returns a pointer to the field with a name in the stored form, or nil if it is not one of storedNames.
func (s *stored) field(name string) any { //nolint:funlen // a table
	switch name {
	case "t":
		return &s.Type
	case "at":
		return &s.Time
	case "rd":
		return &s.Read
	case "c":
		return &s.Cluster
	case "cu":
		return &s.ClusterUID
	case "i":
		return &s.InitialList
	case "f":
		return &s.FinalStateUnknown
	case "l":
		return &s.LeftFilter
	case "ep":
		return &s.Epoch
	case "h":
		return &s.History
	case "d":
		return &s.Delivery
	case "if":
		return &s.IfFound
	case "fi":
		return &s.Final
	case "id":
		return &s.ID
	case "pk":
		return &s.PartitionKey
	case "pl":
		return (*string)(&s.Payload)
	case "s":
		return &s.Structured
	case "g":
		return &s.Group
	case "v":
		return &s.Version
	case "r":
		return &s.Resource
	case "av":
		return &s.APIVersion
	case "k":
		return &s.Kind
	case "ns":
		return &s.Namespace
	case "n":
		return &s.Name
	case "u":
		return (*string)(&s.UID)
	case "rv":
		return &s.ResourceVersion
	case "m":
		return &s.Manager
	case "src":
		return &s.Source
	case "pos":
		return &s.Position
	}
	return nil
}
