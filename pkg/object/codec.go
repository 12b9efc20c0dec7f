package object

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// NegotiatedSerializer lets a REST client of client-go decode JSON to this package's types. Use it as
// rest.Config.NegotiatedSerializer. Decode a LIST into a *List, and a single object into an *Object or nil. A body of
// kind Status always decodes to a *metav1.Status, as client-go expects. For any other type, the body is unmarshalled as
// JSON.
//
// It does not support Request.Watch of client-go, whose stream decoder has a limit of 16 MiB. For watches, read
// Request.Stream with NewWatchDecoder.
func NegotiatedSerializer() runtime.NegotiatedSerializer {
	return runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json",
		EncodesAsText: true, Serializer: runtime.NoopEncoder{Decoder: codec{}}, // the bridge only reads
	})
}

// codec decodes response bodies.
type codec struct{}

// Decode implements runtime.Decoder. The result does not refer to data.
func (codec) Decode(
	data []byte, _ *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		into = &Object{}
	}
	var err error
	switch into := into.(type) {
	case *Object:
		var o *Object
		if o, err = New(data); err == nil {
			*into = *o
		}
	case *List:
		err = into.decode(data)
	default:
		err = utiljson.Unmarshal(data, into)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("decode %T: %w", into, err)
	}
	gvk := into.GetObjectKind().GroupVersionKind()
	if _, ok := into.(*metav1.Status); !ok && gvk == (schema.GroupVersionKind{Version: "v1", Kind: "Status"}) {
		into = decodeStatus(data)
	}
	return into, &gvk, nil
}

// decodeStatus never fails. A member whose type is not the type in metav1.Status counts as absent.
func decodeStatus(data []byte) *metav1.Status {
	status := &metav1.Status{}
	_ = utiljson.Unmarshal(data, status)
	return status
}
