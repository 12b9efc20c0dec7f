package listwatch

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Namespace is the namespace of all objects.
const Namespace = "bench"

// bodies is the number of different contents of objects. It is so large that equal contents are outside the window of a
// compressor.
const bodies = 512

// corpus generates ConfigMaps as an API server writes them.
type corpus struct {
	contents []string // values of data["application.properties"], escaped for a JSON string
}

// newCorpus returns a corpus of objects with about size bytes of JSON. It is deterministic.
func newCorpus(size int) *corpus {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same objects each time is what is wanted
	c := &corpus{}
	overhead := len(c.appendObject(nil, 0, 1, true))
	for range bodies {
		c.contents = append(c.contents, properties(random, max(0, size-overhead)))
	}
	return c
}

// properties generates text that is typical for a ConfigMap: sections of keys with a common prefix, words, numbers and
// some hashes. Objects with it compress to about half (s2) or a third (zstd), as real ones do.
func properties(random *rand.Rand, size int) string {
	words := strings.Fields(
		`server client cache queue timeout interval retries enabled disabled max min size limit path host
		port user role group token level debug info warn error format json text metric trace sample rate window burst backoff
		pool idle keepalive buffer flush batch shard replica leader primary region zone cluster tenant feature flag`,
	)
	word := func() string { return words[random.IntN(len(words))] }
	var b strings.Builder
	for b.Len() < size {
		prefix := "com.example.shop." + word() + "." + word()
		for range 3 + random.IntN(6) {
			switch random.IntN(8) {
			case 0:
				fmt.Fprintf(&b, `%s.%s=%x\n`, prefix, word(), random.Uint64())
			case 1, 2:
				fmt.Fprintf(&b, `%s.%s=%d\n`, prefix, word(), random.IntN(10_000))
			case 3:
				fmt.Fprintf(&b, `%s.%s=true\n`, prefix, word())
			default:
				fmt.Fprintf(&b, `%s.%s.%s=%s-%s\n`, prefix, word(), word(), word(), word())
			}
		}
	}
	return strings.TrimSuffix(b.String()[:size], `\`)
}

// appendObject appends the state of object n at a resourceVersion. Items of a list have neither kind nor apiVersion.
func (c *corpus) appendObject(buf []byte, n int, resourceVersion int64, typed bool) []byte {
	content := ""
	if len(c.contents) > 0 {
		content = c.contents[n%len(c.contents)]
	}
	if typed {
		buf = append(buf, `{"kind":"ConfigMap","apiVersion":"v1",`...)
	} else {
		buf = append(buf, '{')
	}
	buf = append(buf, `"metadata":{"name":"settings-`...)
	buf = appendDigits(buf, n, 6)
	buf = append(buf, `","namespace":"`+Namespace+`","uid":"5e0c4f3a-8d21-4b7e-9c55-`...)
	buf = appendDigits(buf, n, 12)
	buf = append(buf, `","resourceVersion":"`...)
	buf = strconv.AppendInt(buf, resourceVersion, 10)
	buf = append(buf, `","creationTimestamp":"2026-03-01T08:00:00Z","labels":{"app.kubernetes.io/name":"shop",`+
		`"app.kubernetes.io/managed-by":"Helm","tier":"backend"},"annotations":{"example.com/owner":"team-a"},`+
		`"managedFields":[{"manager":"helm","operation":"Update","apiVersion":"v1","time":"2026-03-01T08:00:00Z",`+
		`"fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:application.properties":{},"f:revision":{}},`+
		`"f:metadata":{"f:annotations":{".":{},"f:example.com/owner":{}},"f:labels":{".":{},"f:tier":{}}}}}]},`+
		`"data":{"revision":"`...)
	buf = strconv.AppendInt(buf, resourceVersion, 10)
	buf = append(buf, `","application.properties":"`...)
	buf = append(buf, content...)
	return append(buf, `"}}`...)
}

// appendDigits appends n with leading zeros.
func appendDigits(buf []byte, n, width int) []byte {
	at := len(buf)
	for range width {
		buf = append(buf, '0')
	}
	for i := at + width - 1; n > 0 && i >= at; i-- {
		buf[i] = byte('0' + n%10)
		n /= 10
	}
	return buf
}
