package kafkaaudit

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabridge/deltabridge/test/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafka.Main(m)) }
