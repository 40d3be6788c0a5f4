// A real kube-apiserver and a real etcd in one program, for `make chart-cluster`: the mains of both, chosen by the name
// that it is called by. ../binaries.py builds it.
//
// To take another version of Kubernetes: change it in go.mod (k8s.io/kubernetes v1.X.Y, and v0.X.Y for each module that is
// replaced), take etcd's from the go.mod of that Kubernetes, and run `go mod tidy`.
package main

import (
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if filepath.Base(os.Args[0]) == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
