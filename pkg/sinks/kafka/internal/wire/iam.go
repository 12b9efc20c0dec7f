package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// awsCredentials loads the credentials of the AWS environment at the first use. The SDK renews the credentials before
// they expire, and then also reads the service-account token again.
type awsCredentials struct {
	mu     sync.Mutex
	config *awssdk.Config
}

func (a *awsCredentials) mechanism(ctx context.Context, s *SASL) (sasl.Mechanism, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fail := func(remedy string, err error) error {
		return &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: keyRegion, Remedy: remedy, Err: err}
	}
	if a.config == nil {
		// If the region is empty, the SDK uses the region of the environment.
		config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(s.Region))
		if err != nil {
			return nil, fail("", fmt.Errorf("reading the AWS environment: %w", err))
		}
		if config.Region == "" {
			return nil, fail("set "+keyRegion+" to the region of the cluster, as in eu-central-1",
				errors.New("the AWS region is not known: neither the configuration nor AWS_REGION names it"))
		}
		a.config = &config
	}
	return aws_msk_iam_v2.NewMechanism(*a.config), nil
}
