package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// iamServer is the part of an MSK broker that authenticates. It verifies signatures with the secrets that it knows.
type iamServer struct {
	addr    string
	secrets map[string]string // access key to secret

	mu       sync.Mutex
	clients  []string // client ids
	payloads []map[string]string
	refusals []error
}

func newIAMServer(t *testing.T, secrets map[string]string) *iamServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &iamServer{addr: l.Addr().String(), secrets: secrets}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer nc.Close(); s.serve(nc) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return s
}

func (s *iamServer) serve(nc net.Conn) {
	for {
		version, id, client, msg, err := protocol.ReadRequest(nc)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.clients = append(s.clients, client)
		s.mu.Unlock()
		var res protocol.Message
		switch req := msg.(type) {
		case *apiversions.Request:
			all := &apiversions.Response{}
			for _, key := range []protocol.ApiKey{protocol.Produce, protocol.ApiVersions, protocol.SaslHandshake, protocol.SaslAuthenticate, protocol.Metadata} {
				all.ApiKeys = append(
					all.ApiKeys,
					apiversions.ApiKeyResponse{ApiKey: int16(key), MinVersion: key.MinVersion(), MaxVersion: key.MaxVersion()},
				)
			}
			res = all
		case *saslhandshake.Request:
			h := &saslhandshake.Response{Mechanisms: []string{"AWS_MSK_IAM"}}
			if req.Mechanism != "AWS_MSK_IAM" {
				h.ErrorCode = int16(kafkago.UnsupportedSASLMechanism)
			}
			res = h
		case *saslauthenticate.Request:
			a := &saslauthenticate.Response{AuthBytes: []byte(`{"version":"2020_10_22"}`), SessionLifetimeMs: 900_000}
			if err := s.verify(req.AuthBytes); err != nil {
				a.ErrorCode, a.ErrorMessage = int16(kafkago.SASLAuthenticationFailed), "Access denied"
			}
			res = a
		default:
			return
		}
		if protocol.WriteResponse(nc, version, id, res) != nil {
			return
		}
	}
}

func (s *iamServer) verify(payload []byte) error {
	fields := make(map[string]string)
	err := json.Unmarshal(payload, &fields)
	if err == nil {
		err = s.signed(fields)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads = append(s.payloads, fields)
	if err != nil {
		s.refusals = append(s.refusals, err)
	}
	return err
}

// signed recomputes the signature. Source: AWS, "Signature Version 4 for API requests", and the README of
// aws-msk-iam-auth for the fields.
func (s *iamServer) signed(f map[string]string) error {
	credential := strings.Split(f["x-amz-credential"], "/") // key, date, region, service, aws4_request
	secret, ok := s.secrets[credential[0]]
	if len(credential) != 5 || !ok {
		return fmt.Errorf("unknown credential %q", f["x-amz-credential"])
	}
	date, err := time.Parse("20060102T150405Z", f["x-amz-date"])
	if err != nil || time.Since(date).Abs() > time.Minute || f["x-amz-expires"] != "300" {
		return fmt.Errorf("date %q, expires %q", f["x-amz-date"], f["x-amz-expires"])
	}
	query := url.Values{
		"Action":           {f["action"]},
		"X-Amz-Algorithm":  {f["x-amz-algorithm"]},
		"X-Amz-Credential": {f["x-amz-credential"]},
		"X-Amz-Date": {
			f["x-amz-date"],
		},
		"X-Amz-Expires":       {f["x-amz-expires"]},
		"X-Amz-SignedHeaders": {f["x-amz-signedheaders"]},
	}
	if token := f["x-amz-security-token"]; token != "" {
		query.Set("X-Amz-Security-Token", token)
	}
	empty := sha256.Sum256(nil)
	request := "GET\n/\n" + strings.ReplaceAll(
		query.Encode(),
		"+",
		"%20",
	) + "\nhost:" + f["host"] + "\n\nhost\n" + hex.EncodeToString(
		empty[:],
	)
	sum := sha256.Sum256([]byte(request))
	scope := strings.Join(credential[1:], "/")
	key := []byte("AWS4" + secret)
	for _, part := range append(credential[1:], "AWS4-HMAC-SHA256\n"+f["x-amz-date"]+"\n"+scope+"\n"+hex.EncodeToString(sum[:])) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if f["x-amz-signature"] != hex.EncodeToString(key) {
		return errors.New("the signature is wrong")
	}
	return nil
}

// awsEnvironment removes the AWS settings of this machine from the environment, and sets the given variables.
func awsEnvironment(t *testing.T, set map[string]string) {
	t.Helper()
	nowhere := filepath.Join(t.TempDir(), "none")
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
		"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", nowhere)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func iamClient(t *testing.T, addr, region string) *Client {
	t.Helper()
	return newClient(t, Config{
		Brokers: []string{addr}, SASL: SASL{Mechanism: "AWS_MSK_IAM", Region: region}, RequestTimeout: 5 * time.Second,
		ClientID: "deltabridge-prod-live",
	})
}

// TestIAM: the payload has the fields that MSK demands, under a signature that holds.
func TestIAM(t *testing.T) {
	server := newIAMServer(t, map[string]string{"AKIDEXAMPLE": "right-secret"})
	env := map[string]string{
		"AWS_ACCESS_KEY_ID":     "AKIDEXAMPLE",
		"AWS_SECRET_ACCESS_KEY": "right-secret",
		"AWS_SESSION_TOKEN":     "a/session+token=",
	}
	awsEnvironment(t, env)
	s := iamClient(t, server.addr, "eu-central-1")
	k, err := s.dial(t.Context(), server.addr)
	if err != nil {
		t.Fatalf("%v; %v", err, server.refusals)
	}
	if left := time.Until(k.expires); left < 11*time.Minute || left > 15*time.Minute {
		t.Errorf("the session is used for %v of 15 minutes", left)
	}
	k.close()
	if slices.Contains(server.clients, "") || server.clients[0] != "deltabridge-prod-live" {
		t.Errorf("client ids %q", server.clients)
	}
	got := server.payloads[0]
	credential := got["x-amz-credential"]
	for _, name := range []string{"x-amz-signature", "x-amz-date", "user-agent", "x-amz-credential"} {
		if got[name] == "" {
			t.Errorf("no %s", name)
		}
		delete(got, name)
	}
	if !strings.HasSuffix(credential, "/eu-central-1/kafka-cluster/aws4_request") {
		t.Errorf("credential %s", credential)
	}
	want := map[string]string{
		"version":              "2020_10_22",
		"host":                 "127.0.0.1",
		"action":               "kafka-cluster:Connect",
		"x-amz-algorithm":      "AWS4-HMAC-SHA256",
		"x-amz-signedheaders":  "host",
		"x-amz-expires":        "300",
		"x-amz-security-token": "a/session+token=",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}
}

func TestIAMRefused(t *testing.T) {
	server := newIAMServer(t, map[string]string{"AKIDEXAMPLE": "right-secret"})
	for _, c := range []struct {
		name, region string
		env          map[string]string
		want         blamed
	}{
		{
			"wrong secret", "eu-central-1",
			map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wr0ng-secret"},
			blamed{
				sinks.StepAuthenticate, "kafka.sasl.region",
				"kafka broker ADDR: authenticate: the broker rejected the credentials of the IAM role for AWS_MSK_IAM (Access denied); give the pod AWS credentials (annotate its service account with eks.amazonaws.com/role-arn, or use EKS Pod Identity), allow the IAM role kafka-cluster:Connect on the cluster, and check the clock (see kafka.sasl.region)",
			},
		},
		{
			"no region", "",
			map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "right-secret"},
			blamed{
				sinks.StepAuthenticate, "kafka.sasl.region",
				"kafka broker ADDR: authenticate: the AWS region is unknown: set kafka.sasl.region or the variable AWS_REGION, for example to eu-central-1 (see kafka.sasl.region)",
			},
		},
		{
			"no credentials", "eu-central-1", nil,
			blamed{
				sinks.StepAuthenticate, "kafka.sasl.region",
				"kafka broker ADDR: authenticate: there are no AWS credentials: no EC2 IMDS role found, operation error ec2imds: GetMetadata, access disabled to EC2 IMDS via client option, or \"AWS_EC2_METADATA_DISABLED\" environment variable; give the pod AWS credentials (annotate its service account with eks.amazonaws.com/role-arn, or use EKS Pod Identity), allow the IAM role kafka-cluster:Connect on the cluster, and check the clock (see kafka.sasl.region)",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			awsEnvironment(t, c.env)
			_, err := iamClient(t, server.addr, c.region).Topics(t.Context())
			if diff := cmp.Diff(c.want, blame(t, err, server.addr)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err != nil && (strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "right-secret")) {
				t.Error("it repeats the secret")
			}
		})
	}
}

// TestIAMWebIdentity: the role of a service account (IRSA). Its token is read again when the credentials expire.
func TestIAMWebIdentity(t *testing.T) {
	server := newIAMServer(t, map[string]string{"ASIAEXAMPLE": "temporary"})
	var mu sync.Mutex
	var tokens []string
	life := time.Hour
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, r.FormValue("Action")+" "+r.FormValue("RoleArn")+" "+r.FormValue("WebIdentityToken"))
		_, _ = fmt.Fprintf(
			w,
			`<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
			<Credentials><AccessKeyId>ASIAEXAMPLE</AccessKeyId><SecretAccessKey>temporary</SecretAccessKey><SessionToken>session</SessionToken>
			<Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			time.Now().Add(life).UTC().Format(time.RFC3339Nano),
		)
	}))
	t.Cleanup(sts.Close)
	token := passwordFile(t, "first")
	awsEnvironment(t, map[string]string{
		"AWS_REGION": "us-east-2", "AWS_ENDPOINT_URL_STS": sts.URL,
		"AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/bridge", "AWS_WEB_IDENTITY_TOKEN_FILE": token,
	})
	dial := func(s *Client) {
		t.Helper()
		k, err := s.dial(t.Context(), server.addr)
		if err != nil {
			t.Fatalf("%v; %v", err, server.refusals)
		}
		k.close()
	}
	lasting := iamClient(t, server.addr, "")
	dial(lasting)
	dial(lasting)
	if len(tokens) != 1 {
		t.Errorf("%d roles assumed for two connections", len(tokens))
	}
	life = time.Second
	s := iamClient(t, server.addr, "")
	const call = "AssumeRoleWithWebIdentity arn:aws:iam::123456789012:role/bridge "
	waitUntil(t, func() bool {
		dial(s)
		overwrite(t, token, "second")
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(tokens, call+"second")
	})
	if tokens[0] != call+"first" || !strings.Contains(server.payloads[0]["x-amz-credential"], "/us-east-2/") {
		t.Errorf("%q, %v", tokens, server.payloads[0])
	}
}
