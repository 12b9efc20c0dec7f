package filter

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// An expression asks for a few fields of an object. To decode the whole object for them costs some 50 us and 25 KB for
// a Pod of 5 KB; to walk over the bytes to the field, 3 to 6 us (BenchmarkDecode, BenchmarkFilter). So the variables of an expression are views of the
// JSON: they have the values that apimachinery's util/json gives, and find them when they are asked for.

var errMalformed = errors.New("malformed JSON")

// jsonObject is a JSON object as a CEL map. A field is looked up in the bytes; whatever concerns the map as a
// whole decodes it. It is for one evaluation, in one goroutine.
type jsonObject struct {
	raw   []byte        // begins with {
	found []jsonField   // what was looked up before
	whole traits.Mapper // the map decoded; nil until it is needed
}

type jsonField struct {
	key   string
	value ref.Val // nil: there is no such field
}

var _ interface {
	traits.Mapper
	traits.Zeroer
} = (*jsonObject)(nil)

// newView returns raw as a CEL value; if raw is no JSON object, as an error.
func newView(raw []byte) ref.Val {
	start := jsonscan.Space(raw, 0)
	if start == len(raw) || raw[start] != '{' {
		return types.WrapErr(errMalformed)
	}
	return &jsonObject{raw: raw[start:]}
}

// Find implements traits.Mapper.
func (o *jsonObject) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return o.decoded().Find(key)
	}
	for _, field := range o.found {
		if field.key == string(name) {
			return field.value, field.value != nil
		}
	}
	value, err := o.lookup(string(name))
	if err != nil {
		return types.WrapErr(err), false
	}
	o.found = append(o.found, jsonField{string(name), value})
	return value, value != nil
}

// lookup returns nil if there is no such field. Of several with one key it takes the last, as encoding/json does.
func (o *jsonObject) lookup(name string) (ref.Val, error) {
	var last []byte
	c := jsonscan.NewCursor(o.raw)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		inner := key[1 : len(key)-1]
		if string(inner) == name {
			last = value
			continue
		}
		if !isPlain(inner) {
			if decoded, err := jsonscan.Unquote(key); err == nil && decoded == name {
				last = value
			}
		}
	}
	if c.Bad {
		return nil, errMalformed
	}
	if last == nil {
		return nil, nil
	}
	return jsonValue(last), nil
}

// isPlain reports that a key can be compared byte for byte.
func isPlain(inner []byte) bool {
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// decoded is the map as a whole. If that can't be decoded, it is empty; jsonObject's methods that can say so, do.
func (o *jsonObject) decoded() traits.Mapper {
	if o.whole == nil {
		var m map[string]any
		if err := utiljson.Unmarshal(o.raw, &m); err != nil {
			m = nil
		}
		o.whole = types.NewStringInterfaceMap(types.DefaultTypeAdapter, m)
	}
	return o.whole
}

// Get implements traits.Indexer.
func (o *jsonObject) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if found || value != nil {
		return value
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (o *jsonObject) Contains(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if !found && value != nil {
		return value // an error
	}
	return types.Bool(found)
}

// Size implements traits.Sizer. CEL's cost model asks for it often, so that it must not decode. A key that comes
// twice, which the API server does not send, counts twice.
func (o *jsonObject) Size() ref.Val {
	n := 0
	c := jsonscan.NewCursor(o.raw)
	for _, _, ok := c.Member(); ok; _, _, ok = c.Member() {
		n++
	}
	if c.Bad {
		return types.WrapErr(errMalformed)
	}
	return types.Int(n)
}

// IsZeroValue implements traits.Zeroer.
func (o *jsonObject) IsZeroValue() bool { return o.Size() == types.IntZero }

// Equal implements ref.Val.
func (o *jsonObject) Equal(other ref.Val) ref.Val {
	if _, ok := other.(traits.Mapper); !ok {
		return types.False
	}
	if view, ok := other.(*jsonObject); ok {
		if bytes.Equal(view.raw, o.raw) {
			return types.True // the same bytes are the same values: JSON has no NaN
		}
		other = view.decoded()
	}
	return o.decoded().Equal(other)
}

// The rest concerns the map as a whole.

// Iterator implements traits.Iterable.
func (o *jsonObject) Iterator() traits.Iterator { return o.decoded().Iterator() }

// ConvertToNative implements ref.Val.
func (o *jsonObject) ConvertToNative(t reflect.Type) (any, error) {
	return o.decoded().ConvertToNative(t)
}

// ConvertToType implements ref.Val.
func (o *jsonObject) ConvertToType(t ref.Type) ref.Val { return o.decoded().ConvertToType(t) }

// Type implements ref.Val.
func (o *jsonObject) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *jsonObject) Value() any { return o.decoded().Value() }

// jsonValue makes a CEL value of one JSON value.
func jsonValue(raw []byte) ref.Val {
	switch raw[0] {
	case '{':
		return &jsonObject{raw: raw}
	case '[':
		return jsonArray(raw)
	case '"':
		s, err := jsonscan.Unquote(raw)
		if err != nil {
			return types.WrapErr(fmt.Errorf("%w: %w", errMalformed, err))
		}
		return types.String(s)
	}
	switch string(raw) {
	case "null":
		return types.NullValue
	case "true":
		return types.True
	case "false":
		return types.False
	}
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return types.WrapErr(errMalformed)
	}
	return jsonNumber(string(raw))
}

func jsonArray(raw []byte) ref.Val {
	var elements []ref.Val
	c := jsonscan.NewCursor(raw)
	for value, ok := c.Element(); ok; value, ok = c.Element() {
		elements = append(elements, jsonValue(value))
	}
	if c.Bad {
		return types.WrapErr(errMalformed)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}

// jsonNumber follows apimachinery: an integer that fits is an int64, everything else a float64.
func jsonNumber(text string) ref.Val {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(i)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return types.WrapErr(fmt.Errorf("%w: %w", errMalformed, err))
	}
	return types.Double(f)
}
