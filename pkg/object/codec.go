package object

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// NegotiatedSerializer lets a REST client of client-go decode JSON to this package's types. Use it as
// rest.Config.NegotiatedSerializer. Decode into a *List for a LIST, into an *Object or into nil for one object. A body
// of kind Status gives a *metav1.Status in each case, as client-go expects. Into any other type the body is
// unmarshalled as JSON.
//
// It does not serve Request.Watch of client-go, whose stream decoder has a limit of 16 MiB: read Request.Stream with
// NewWatchDecoder.
func NegotiatedSerializer() runtime.NegotiatedSerializer {
	return runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json",
		EncodesAsText: true, Serializer: runtime.NoopEncoder{Decoder: codec{}}, // the bridge only reads
	})
}

// codec decodes the bodies of responses.
type codec struct{}

// Decode implements runtime.Decoder. It copies what it keeps of data.
func (codec) Decode(
	data []byte,
	_ *schema.GroupVersionKind,
	into runtime.Object,
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

// decodeStatus never fails: a member that has another type than in a Status counts as absent.
func decodeStatus(data []byte) *metav1.Status {
	status := &metav1.Status{}
	_ = utiljson.Unmarshal(data, status)
	return status
}
