// Package node installs the Helm chart on a real Kubernetes node, and operates it: upgrades, crashes, outages.
//
// `make test-node` runs it; without the variable DELTABRIDGE_TEST_NODE the package has no tests. The test binary builds
// what is required, and runs itself again as process 1 of new mount, PID, network, UTS and IPC namespaces. There it is
// also the supervisor of the node: kubelet, containerd, scheduler and CoreDNS, together with the control plane of
// test/cluster. When process 1 ends, or is killed, the kernel ends everything else. Nothing outside sees the node, and
// the node changes nothing outside, except a cgroup of its own and files in .work/node. If the test is killed, empty
// cgroups remain until the next run.
//
// What differs from a production node:
//   - Images are loaded and not pulled.
//   - There is no kube-proxy: only headless Services and the API server's address work.
//   - Components other than Pods have the administrator's permissions.
//   - NetworkPolicies are not enforced.
//   - Eviction because of a lack of memory or disk is disabled, because other programs use the machine, too.
package node
