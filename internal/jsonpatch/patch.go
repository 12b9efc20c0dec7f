package jsonpatch

import "encoding/json"

// AppendPatch appends the changes as a JSON Patch document (RFC 6902).
func AppendPatch(dst []byte, changes []Change) []byte {
	dst = append(dst, '[')
	for n := range changes {
		c := &changes[n]
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, `{"op":"`...), c.Op...)
		dst = append(dst, `","path":`...)
		dst = AppendString(dst, string(appendPointer(nil, c.Path, c.at)))
		if c.Op != Remove {
			dst = append(append(dst, `,"value":`...), c.Value...)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendMerge appends the JSON Merge Patch (RFC 7386) that turns oldDoc into newDoc. A merge patch cannot set a member
// to null, because null means that the member is removed, and it replaces lists as a whole.
func AppendMerge(dst, oldDoc, newDoc []byte) []byte {
	oldDoc, newDoc = trim(oldDoc), trim(newDoc)
	if len(oldDoc) == 0 || len(newDoc) == 0 {
		return append(dst, newDoc...)
	}
	return appendMerge(dst, oldDoc, newDoc, 0)
}

func appendMerge(dst, before, after []byte, depth int) []byte {
	if before[0] != '{' || after[0] != '{' || depth > maxDepth {
		return append(dst, after...)
	}
	a, okBefore := membersOf(before)
	b, okAfter := membersOf(after)
	if !okBefore || !okAfter {
		return append(dst, after...)
	}
	dst = append(dst, '{')
	first := true
	member := func(name string) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(AppendString(dst, name), ':')
	}
	for _, name := range a.names {
		if _, stays := b.index[name]; !stays {
			member(name)
			dst = append(dst, "null"...)
		}
	}
	for n, name := range b.names {
		at, was := a.index[name]
		switch {
		case !was:
			member(name)
			dst = append(dst, b.values[n]...)
		case !same(a.values[at], b.values[n]):
			member(name)
			dst = appendMerge(dst, a.values[at], b.values[n], depth+1)
		}
	}
	return append(dst, '}')
}

// AppendString appends s as a JSON string. Nearly all values are plain ASCII and need no escape.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil { // a string always marshals
				return append(dst, `""`...)
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
