package etcdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// withLogin turns etcd's authentication on. From then on the cluster's own client is root. It returns the options of
// the command for a user "replica", and a function that changes its password, in etcd and then in the file.
func (c *cluster) withLogin(t *testing.T) (options []string, change func()) {
	t.Helper()
	ctx := testutils.Context(t)
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		// As the symbolic links of a Kubernetes Secret do: at no time there is no file, or half of one.
		xdstest.NoError(t, os.WriteFile(file+".next", []byte(password+"\n"), 0o600))
		xdstest.NoError(t, os.Rename(file+".next", file))
	}
	write("password 0")
	// What docs/tasks/store.md says that replicas need.
	grant := func(key string, permission clientv3.PermissionType) error {
		_, err := c.client.RoleGrantPermission(ctx, "replica", key, clientv3.GetPrefixRangeEnd(key), permission)
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := c.client.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.client.UserAdd(ctx, "replica", "password 0"); return err },
		func() error { _, err := c.client.RoleAdd(ctx, "replica"); return err },
		func() error { return grant(prefix+"/", clientv3.PermissionType(clientv3.PermRead)) },
		func() error { return grant(prefix+"/replicas/", clientv3.PermissionType(clientv3.PermReadWrite)) },
		func() error { _, err := c.client.UserGrantRole(ctx, "replica", "replica"); return err },
		func() error { _, err := c.client.AuthEnable(ctx); return err },
	} {
		xdstest.NoError(t, step())
	}
	c.client.Close()
	var err error
	c.client, err = clientv3.New(clientv3.Config{Endpoints: c.addresses(), TLS: c.tls, Username: "root", Password: "secret", Logger: zap.NewNop()})
	xdstest.NoError(t, err)

	changes := 0
	return []string{"--store-user", "replica", "--store-password-file", file}, func() {
		t.Helper()
		changes++
		password := fmt.Sprintf("password %d", changes)
		_, err := c.client.UserChangePassword(testutils.Context(t), "replica", password)
		xdstest.NoError(t, err)
		write(password)
	}
}

// A replica logs in with the password that is in the file by now: it sees changes and is in the list of
// replicas again after the password has changed, whether etcd was restarted or not.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restarts), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			c.put(key("0.yaml"), service("s0", "10.0.0.1:1"))
			options, change := c.withLogin(t)
			r := newReplica(t, c, append(options, "--admin=:0")...)
			defer func() {
				xdstest.Equal(t, "permissions that the replica lacks", 0, r.log.Count("level=ERROR", "permission denied"))
			}()
			for i := 1; i <= 2; i++ {
				change()
				if restarts {
					c.kill(0)
					c.start(0)
				}
				c.put(key(fmt.Sprintf("%d.yaml", i)), service(fmt.Sprintf("s%d", i), "10.0.0.1:1"))
				r.logged("msg=published", fmt.Sprintf("services=%d", i+1))
				cmdtest.Await(t, func() string {
					// A lease that ends takes the entry of the old login with it.
					response, err := c.client.Get(testutils.Context(t), prefix+"/replicas/", clientv3.WithPrefix())
					if err != nil || len(response.Kvs) != 1 {
						return fmt.Sprintf("the list of replicas is %v, %v; want one", response, err)
					}
					return ""
				})
			}
		})
	}
}
