// What Compose v2 reads in a file: the services of every profile as JSON, or its complaint.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	options, err := cli.NewProjectOptions(os.Args[1:], cli.WithOsEnv, cli.WithName("read"), cli.WithProfiles([]string{"*"}))
	if err != nil {
		fail(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(project); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
