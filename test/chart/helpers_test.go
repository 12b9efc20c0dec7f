package chart

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// statefulSet is the one in a rendering.
func statefulSet(t *testing.T, rendering string) *appsv1.StatefulSet {
	t.Helper()
	for _, o := range objects(t, rendering) {
		if o.Kind == "StatefulSet" {
			sts := &appsv1.StatefulSet{}
			o.decode(t, sts)
			return sts
		}
	}
	t.Fatal("there is no StatefulSet")
	return nil
}

// deployment is the one in a rendering, or nil.
func deployment(t *testing.T, rendering string) *appsv1.Deployment {
	t.Helper()
	for _, o := range objects(t, rendering) {
		if o.Kind == "Deployment" {
			d := &appsv1.Deployment{}
			o.decode(t, d)
			return d
		}
	}
	return nil
}

// bridgePod is the template of the bridge's Pod in a rendering.
func bridgePod(t *testing.T, rendering string) *corev1.PodTemplateSpec {
	t.Helper()
	if d := deployment(t, rendering); d != nil {
		return &d.Spec.Template
	}
	return &statefulSet(t, rendering).Spec.Template
}

// certificate is a certificate that signs itself, as PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
