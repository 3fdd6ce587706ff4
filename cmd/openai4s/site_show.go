package main

// siteCommands are those about the site file.
type siteCommands struct {
	Show  siteShowCommand  `cmd:"" help:"Show the profiles as they take effect, the bound, and where each number comes from."`
	Check siteCheckCommand `cmd:"" help:"Check the site file."`
}

type siteShowCommand struct{}

func (siteShowCommand) Help() string {
	return `Example:

    openai4s site show`
}

func (siteShowCommand) Run(a *app) error {
	s, err := a.loadSite()
	if err != nil {
		return err
	}
	return a.print(s)
}
