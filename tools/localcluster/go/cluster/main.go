// One binary for every Kubernetes component, etcd and CoreDNS: they share most of their code, so one compilation and one
// file on disk replace eight. The name it is called by (a symbolic link) selects the component.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// What CoreDNS declares for the whole program as soon as it is linked; kube-proxy would take its -version for its own.
var dnsFlags = map[string]bool{
	"conf": true, "dns.port": true, "p": true, "pidfile": true, "plugins": true, "quiet": true, "version": true,
}

func main() {
	component := filepath.Base(os.Args[0])
	if component == "coredns" {
		coremain.Run()
		return
	}
	withoutFlagsOfDNS()
	switch component {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		runKubectl()
	case "kube-apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		run(controllermanager.NewControllerManagerCommand())
	case "kube-scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubelet":
		run(kubelet.NewKubeletCommand(context.Background()))
	case "kube-proxy":
		run(proxy.NewProxyCommand())
	default:
		fmt.Fprintf(os.Stderr, "%s: no such component; call this program through a link named after one\n", component)
		os.Exit(2)
	}
}

func withoutFlagsOfDNS() {
	kept := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	flag.VisitAll(func(declared *flag.Flag) {
		if !dnsFlags[declared.Name] {
			kept.Var(declared.Value, declared.Name, declared.Usage)
		}
	})
	flag.CommandLine = kept
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubectl() {
	// kubectl wants its verbosity before its command tree is built: plugins already log while it is.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
