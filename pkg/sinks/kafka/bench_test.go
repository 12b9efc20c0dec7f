package kafka

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// BenchmarkSend delivers events of 2.6 KB to a real broker, in batches as a busy drain sends them. It reports the CPU
// time of this process for each event, without the CPU time of the broker.
func BenchmarkSend(b *testing.B) {
	broker := testkafka.ForTest(b)
	for _, c := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		for _, size := range []int{16, 1024} {
			b.Run(fmt.Sprintf("%s/batch=%d", c, size), func(b *testing.B) {
				topic := fmt.Sprintf("bench-%s-%d-%d", c, size, b.N)
				testkafka.CreateTopic(b, broker.Addr(), topic, 6, map[string]string{"retention.bytes": "100000000"})
				s := process(b, Config{Brokers: []string{broker.Addr()}, Topic: topic, Compression: c}, new(stored))
				batch := benchBatch(size)
				results := make([]error, size)
				mustSend(b, s, batch...)
				b.ReportAllocs()
				start, cpu := time.Now(), cpuTime(b)
				b.ResetTimer()
				for n := 0; n < b.N; n += size {
					s.Send(b.Context(), batch, results)
					for _, err := range results {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
				b.StopTimer()
				sent := float64((b.N + size - 1) / size * size)
				b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/sent/1000, "cpu-us/event")
				b.ReportMetric(sent/time.Since(start).Seconds(), "events/s")
			})
		}
	}
}

// benchBatch are Pods with a spec as verbose as real ones.
func benchBatch(n int) (batch []*event.Message) {
	for i := range n {
		m := change(event.Updated, fmt.Sprintf("web-%d", i), i)
		data := fmt.Appendf(
			nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"web-%d","uid":"%x-7d3f-4c1a-9b60-0242ac13%04x","resourceVersion":"%d"},"spec":{"containers":[`,
			i,
			i*2654435761,
			i,
			i*31,
		)
		for k := 0; len(data) < 2500; k++ {
			data = fmt.Appendf(
				data,
				`{"name":"c%d","image":"registry.example.com/team-%d/app:%x","env":[{"name":"VAR_%d","value":"%x"}],"resources":{"limits":{"cpu":"%dm","memory":"%dMi"}}},`,
				k,
				i%17,
				i*40503,
				k,
				uint32(i*k)*2246822519,
				i%900,
				k*64,
			)
		}
		m.Data = append(data[:len(data)-1], `]}}`...)
		batch = append(batch, m)
	}
	return batch
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkEncode is the encoding and compression alone, with the size of a record as it is sent.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		b.Run(c, func(b *testing.B) {
			batch200 := benchBatch(200)
			codec := codecOf(c)
			var bt batch
			size := 0
			b.ReportAllocs()
			for n := 0; n < b.N; n += len(batch200) {
				bt.Reset(testTime)
				for _, m := range batch200 {
					bt.add(m, false, 1<<30)
				}
				set, err := bt.encode(codec, producer{1, 0, 0})
				if err != nil {
					b.Fatal(err)
				}
				size = len(set)
			}
			b.ReportMetric(float64(size)/200, "B/record")
		})
	}
}
