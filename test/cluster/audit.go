package cluster

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/freeport"
)

// AuditClient is the common name in the client certificate with which the API
// server sends audit events.
const AuditClient = "kube-apiserver"

// AuditIntake is what an API server and a receiver of its audit events need to
// find and to trust each other. The caller starts the receiver.
type AuditIntake struct {
	Address string // to which the API server sends
	// CertFile and KeyFile are the receiver's. CAFile has the authority that has
	// signed its certificate, and that of the API server.
	CertFile, KeyFile, CAFile string
	// ClientCertFile and ClientKeyFile are the API server's.
	ClientCertFile, ClientKeyFile string
	// Flags are for Options.APIServerFlags: with the policy, and in batch mode
	// with the defaults of the API server.
	Flags []string
}

// NewAuditIntake writes the files of an AuditIntake into dir. policy is what the
// audit policy contains besides kind and apiVersion. If the address is empty, it
// is 127.0.0.1 and a free port.
func NewAuditIntake(dir, policy, address string) (*AuditIntake, error) {
	a := &AuditIntake{Address: address, CAFile: filepath.Join(dir, "audit-ca.crt")}
	if address == "" {
		found, err := freeport.Reserve(1)
		if err != nil {
			return nil, err
		}
		a.Address = freeport.Address(found[0])
	}
	authority, err := certs.New("audit")
	if err != nil {
		return nil, err
	}
	clientDir := filepath.Join(dir, "audit-client")
	if err := os.MkdirAll(clientDir, 0o700); err != nil {
		return nil, err
	}
	a.ClientCertFile, a.ClientKeyFile, err = authority.IssueFiles(clientDir, certs.Options{Name: AuditClient})
	if err != nil {
		return nil, err
	}
	a.CertFile, a.KeyFile, err = authority.IssueFiles(dir, certs.Options{Name: "intake", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["intake"] = &clientcmdapi.Cluster{
		Server: "https://" + a.Address + "/audit", CertificateAuthority: a.CAFile,
	}
	kubeconfig.AuthInfos["intake"] = &clientcmdapi.AuthInfo{
		ClientCertificate: a.ClientCertFile,
		ClientKey:         a.ClientKeyFile,
	}
	kubeconfig.Contexts["intake"] = &clientcmdapi.Context{Cluster: "intake", AuthInfo: "intake"}
	kubeconfig.CurrentContext = "intake"
	webhook, policyFile := filepath.Join(dir, "audit-webhook.yaml"), filepath.Join(dir, "audit-policy.yaml")
	a.Flags = []string{
		"--audit-policy-file=" + policyFile, "--audit-webhook-config-file=" + webhook, "--audit-webhook-mode=batch",
	}
	if err := clientcmd.WriteToFile(*kubeconfig, webhook); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.CAFile, authority.PEM(), 0o600); err != nil {
		return nil, err
	}
	return a, os.WriteFile(policyFile, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+policy), 0o600)
}
