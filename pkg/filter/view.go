package filter

import (
	"bytes"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// An expression uses only a few fields of an object. Decoding a whole Pod of 5 KB takes about 50 us and allocates 25
// KB; scanning its bytes for one field takes 3 to 6 us (BenchmarkDecode, BenchmarkFilter). Therefore the variables of
// an expression are views of the JSON that decode a field when the expression reads it. Decoded values have the same
// types as in apimachinery's util/json.

var errMalformed = errors.New("malformed JSON")

// jsonObject is a JSON object as a CEL map. Field lookups scan the bytes; operations on the whole map decode it first.
// A jsonObject must not be used by more than one goroutine.
type jsonObject struct {
	raw   []byte        // starts with {
	found []jsonField   // results of earlier lookups
	whole traits.Mapper // the decoded map; nil until an operation requires it
}

type jsonField struct {
	key   string
	value ref.Val // nil if the object does not have the field
}

var _ interface {
	traits.Mapper
	traits.Zeroer
} = (*jsonObject)(nil)

// newView returns a JSON object as a CEL value, or a CEL error if raw is not an object.
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
	field := jsonField{key: string(name)}
	var last []byte // if a field occurs several times, the last one counts, as in encoding/json
	w := jsonscan.Open(o.raw, 0, '{')
	for key, value := range w.All {
		if string(key) == field.key {
			last = value
		}
	}
	if w.Bad {
		return types.WrapErr(errMalformed), false
	}
	if last != nil {
		field.value = jsonValue(last)
	}
	o.found = append(o.found, field)
	return field.value, field.value != nil
}

// decoded returns the decoded map, or an empty map if the JSON is invalid.
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

// Size implements traits.Sizer. CEL's cost model calls it often, so it must not decode the object. Size counts
// duplicate keys separately; the API server does not send any.
func (o *jsonObject) Size() ref.Val {
	n := 0
	w := jsonscan.Open(o.raw, 0, '{')
	for range w.All {
		n++
	}
	if w.Bad {
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
			return types.True // JSON has no NaN, so equal bytes mean equal values
		}
		other = view.decoded()
	}
	return o.decoded().Equal(other)
}

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

// jsonValue returns a JSON value as a CEL value.
func jsonValue(raw []byte) ref.Val {
	switch raw[0] {
	case '{':
		return &jsonObject{raw: raw}
	case '[':
		return jsonArray(raw)
	case '"':
		text := jsonscan.Text(raw)
		if text == nil {
			return types.WrapErr(errMalformed)
		}
		return types.String(text)
	}
	switch string(raw) {
	case "null":
		return types.NullValue
	case "true":
		return types.True
	case "false":
		return types.False
	}
	// As in apimachinery, a number is an Int if it is an integer that fits into an int64, otherwise a Double.
	if i, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return types.Int(i)
	}
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil && strings.IndexByte("-0123456789", raw[0]) >= 0 {
		return types.Double(f)
	}
	return types.WrapErr(errMalformed)
}

func jsonArray(raw []byte) ref.Val {
	var elements []ref.Val
	w := jsonscan.Open(raw, 0, '[')
	for w.Next() {
		if value := w.Value(); !w.Bad {
			elements = append(elements, jsonValue(value))
		}
	}
	if w.Bad {
		return types.WrapErr(errMalformed)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements)
}
