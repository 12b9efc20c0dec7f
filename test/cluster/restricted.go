package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/deltabridge/deltabridge/test/poll"
)

const (
	restrictedNamespace = "default"
	kubeconfigSuffix    = ".kubeconfig"
	tokenLifetime       = 24 * time.Hour
)

// RestrictedKubeconfig makes a service account that may do what the rules say, in
// all namespaces, and nothing else but what every authenticated user may. It
// returns the path of a kubeconfig for it, in the cluster's folder. The rules are
// in force when it returns. The account is in the namespace "default", and all
// its objects have the same, new name, which begins with "restricted-".
func (c *Cluster) RestrictedKubeconfig(ctx context.Context, rules []rbacv1.PolicyRule) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restricted kubeconfig: %w", err)
		}
	}()
	config := c.RESTConfig()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	name, err := createAccount(ctx, client, rules)
	if err != nil {
		return "", err
	}
	lifetime := int64(tokenLifetime.Seconds())
	answer, err := client.CoreV1().ServiceAccounts(restrictedNamespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	data, err := kubeconfig(config, name, answer.Status.Token)
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.opts.Dir, name+kubeconfigSuffix)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	return path, waitForRules(ctx, path, rules)
}

// Token returns a token for an audience, of the service account of a kubeconfig that RestrictedKubeconfig has written.
func (c *Cluster) Token(ctx context.Context, kubeconfig, audience string) (string, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return "", err
	}
	name := strings.TrimSuffix(filepath.Base(kubeconfig), kubeconfigSuffix)
	answer, err := client.CoreV1().ServiceAccounts(restrictedNamespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", name, err)
	}
	return answer.Status.Token, nil
}

// createAccount creates a service account, a cluster role with the rules, and
// the binding between them. It returns their name.
func createAccount(ctx context.Context, client kubernetes.Interface, rules []rbacv1.PolicyRule) (string, error) {
	account, err := client.CoreV1().ServiceAccounts(restrictedNamespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	meta := metav1.ObjectMeta{Name: account.Name}
	_, err = client.RbacV1().ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}, metav1.CreateOptions{})
	return account.Name, err
}

// kubeconfig encodes a kubeconfig for the server of config and another user.
func kubeconfig(config *rest.Config, user, token string) ([]byte, error) {
	out := clientcmdapi.NewConfig()
	out.Clusters["local"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	out.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	out.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: user, Namespace: restrictedNamespace}
	out.CurrentContext = "local"
	return clientcmd.Write(*out)
}

// waitForRules asks the API server what the user of the kubeconfig may do, until
// it names the rules: the authorizer learns of roles from a watch, some
// milliseconds after they were written.
func waitForRules(ctx context.Context, path string, rules []rbacv1.PolicyRule) error {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return poll.Until(ctx, readyPoll, readyTimeout, func() error {
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: restrictedNamespace},
		}, metav1.CreateOptions{})
		if err == nil && !InForce(review.Status, rules) {
			err = errors.New("the rules are not in force")
		}
		return err
	})
}

// InForce reports whether the status names each of the rules. RBAC repeats them
// there one by one, as they are.
func InForce(status authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) bool {
	for _, want := range rules {
		resource := slices.ContainsFunc(status.ResourceRules, func(got authorizationv1.ResourceRule) bool {
			return slices.Equal(got.Verbs, want.Verbs) && slices.Equal(got.APIGroups, want.APIGroups) &&
				slices.Equal(got.Resources, want.Resources) && slices.Equal(got.ResourceNames, want.ResourceNames)
		})
		nonResource := slices.ContainsFunc(status.NonResourceRules, func(got authorizationv1.NonResourceRule) bool {
			return slices.Equal(got.Verbs, want.Verbs) && slices.Equal(got.NonResourceURLs, want.NonResourceURLs)
		})
		if len(want.Resources) > 0 && !resource || len(want.NonResourceURLs) > 0 && !nonResource {
			return false
		}
	}
	return true
}
