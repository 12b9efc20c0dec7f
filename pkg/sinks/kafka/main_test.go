package kafka

import (
	"testing"

	"go.uber.org/goleak"

	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testkafka.Main(m)) }
