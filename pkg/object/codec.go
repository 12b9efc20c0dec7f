package object

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// NegotiatedSerializer lets a REST client of client-go decode JSON to this package's types; plug it into
// rest.Config.NegotiatedSerializer. Decoding into a *List gives the list of a LIST, into an *Object one object, into
// nothing an *Object; a body of kind Status gives a *metav1.Status in each case, as client-go expects. Into any other
// type the body is unmarshalled as JSON.
//
// It does not serve Request.Watch of client-go, whose stream decoder has a limit of 16 MiB: read Request.Stream with
// NewWatchDecoder.
func NegotiatedSerializer() runtime.NegotiatedSerializer {
	return negotiated{}
}

type negotiated struct{}

func (negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json",
		EncodesAsText: true, Serializer: codec{},
	}}
}

func (negotiated) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder {
	return e
}

func (negotiated) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// codec decodes the bodies of responses.
type codec struct{}

// Identifier implements runtime.Encoder.
func (codec) Identifier() runtime.Identifier { return "deltabridge-object" }

// Encode writes an Object as its bytes and anything else as JSON.
func (codec) Encode(obj runtime.Object, w io.Writer) error {
	if o, ok := obj.(*Object); ok {
		_, err := w.Write(o.Raw)
		return err
	}
	return json.NewEncoder(w).Encode(obj)
}

// Decode implements runtime.Decoder. It copies what it keeps of data.
func (codec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if _, ok := into.(*metav1.Status); !ok && isStatus(data) {
		return decodeStatus(data), statusGVK(), nil
	}
	switch into := into.(type) {
	case nil:
		o, err := New(data)
		if err != nil {
			return nil, nil, err
		}
		gvk := o.GVK()
		return o, &gvk, nil
	case *Object:
		o, err := New(data)
		if err != nil {
			return nil, nil, err
		}
		*into = *o
		gvk := into.GVK()
		return into, &gvk, nil
	case *List:
		if err := into.decode(data); err != nil {
			return nil, nil, err
		}
		gvk := into.GroupVersionKind()
		return into, &gvk, nil
	}
	if err := utiljson.Unmarshal(data, into); err != nil {
		return nil, nil, fmt.Errorf("decode %T: %w", into, err)
	}
	gvk := into.GetObjectKind().GroupVersionKind()
	return into, &gvk, nil
}

func statusGVK() *schema.GroupVersionKind {
	return &schema.GroupVersionKind{Version: "v1", Kind: "Status"}
}

// isStatus looks no further than it must: every apiserver writes kind and apiVersion in front of what is long. Objects
// that name them later are read to their end, which costs one more scan.
func isStatus(data []byte) bool {
	i := jsonscan.Space(data, 0)
	if i == len(data) || data[i] != '{' {
		return false
	}
	var kind, apiVersion []byte
	w := open(data, i)
	for w.next() {
		switch string(w.key) {
		case "kind":
			kind = w.text()
		case "apiVersion":
			apiVersion = w.text()
		default:
			w.skip()
			continue
		}
		if kind != nil && string(kind) != "Status" || apiVersion != nil && string(apiVersion) != "v1" {
			return false
		}
	}
	return string(kind) == "Status" && string(apiVersion) == "v1"
}

// decodeStatus never fails: what is of another type than a Status has there counts as absent.
func decodeStatus(data []byte) *metav1.Status {
	status := &metav1.Status{}
	_ = utiljson.Unmarshal(data, status)
	return status
}
