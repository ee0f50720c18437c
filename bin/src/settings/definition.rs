//! Definition of a setting, and the macro that makes from one list of them the options of the
//! command line, the variables of the environment and the keys of a configuration file.

/// Definition of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Name with underscores, as in the source.
    identifier: &'static str,
    /// Group in the reference.
    pub(crate) group: &'static str,
    /// Text of the help.
    help: &'static str,
    /// Name of the value in the help.
    pub(crate) value_name: &'static str,
    /// Value as a file has it: the default, or an example.
    pub(crate) example: &'static str,
    pub(crate) default: Default,
    /// Value that tips give, if it is another one: a default that turns the setting off is none.
    pub(crate) likely: Option<&'static str>,
    pub(crate) scope: Scope,
    /// Whether a reload changes it; if not, it takes a restart.
    pub(crate) is_live: bool,
    /// Further names of the option, Tokyo Tyrant's.
    pub(crate) aliases: &'static [&'static str],
    /// The command line has it without a name.
    pub(crate) is_positional: bool,
}

/// Value of a setting that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// The example.
    Example,
    /// A value that the machine or other settings determine, in words.
    Words(&'static str),
}

/// Part of the server to which a setting applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The process, whatever the number of databases.
    Process,
    /// A database. Above the sections of several databases it applies to all of them.
    Database,
    /// A database, with a value of its own for each.
    OneDatabase,
}

impl Setting {
    /// Returns a setting with this name of its value, and this default as a file has it.
    pub(super) const fn new(value_name: &'static str, default: &'static str) -> Self {
        Self {
            identifier: "",
            group: "",
            help: "",
            value_name,
            example: default,
            default: Default::Example,
            likely: None,
            scope: Scope::Database,
            is_live: false,
            aliases: &[],
            is_positional: false,
        }
    }

    /// Returns a switch, which is off by default.
    pub(super) const fn switch() -> Self {
        Self::new("true|false", "false").likely("true")
    }

    /// Returns a setting whose default is in words; a file may have `example`.
    pub(super) const fn unset(
        value_name: &'static str,
        example: &'static str,
        default: &'static str,
    ) -> Self {
        Self { default: Default::Words(default), ..Self::new(value_name, example) }
    }

    /// Returns the setting with another value for tips.
    pub(super) const fn likely(self, value: &'static str) -> Self {
        Self { likely: Some(value), ..self }
    }

    pub(super) const fn of_process(self) -> Self {
        Self { scope: Scope::Process, ..self }
    }

    pub(super) const fn of_one_database(self) -> Self {
        Self { scope: Scope::OneDatabase, ..self }
    }

    pub(super) const fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    pub(super) const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn positional(self) -> Self {
        Self { is_positional: true, ..self }
    }

    pub(super) const fn named(
        self,
        identifier: &'static str,
        group: &'static str,
        help: &'static str,
    ) -> Self {
        Self { identifier, group, help, ..self }
    }

    /// Returns the name, which is the key in a file and, after `--`, the option.
    pub(crate) fn name(&self) -> String {
        self.identifier.replace('_', "-")
    }

    /// Returns the variable of the environment.
    pub(crate) fn variable(&self) -> String {
        format!("TYRANT_{}", self.identifier.to_ascii_uppercase())
    }

    /// Returns the text of the help on one line.
    pub(crate) fn help(&self) -> String {
        self.help.trim().to_owned()
    }

    /// Returns the default as the help and the reference show it.
    pub(crate) fn default_text(&self) -> String {
        match self.default {
            Default::Words(words) => words.to_owned(),
            Default::Example if self.example == "false" => "off".to_owned(),
            Default::Example => self.example.trim_matches('"').to_owned(),
        }
    }

    /// Returns the option of the command line, still without the parser of its values.
    pub(super) fn option(&self) -> clap::Arg {
        let help = format!("{} [default: {}]", self.help(), self.default_text());
        let option = clap::Arg::new(self.identifier)
            .value_name(self.value_name)
            .help(help)
            .env(self.variable())
            // The variables follow a rule, which the end of the help gives.
            .hide_env(true);
        if self.is_positional {
            return option.index(1);
        }
        option.long(self.name()).visible_aliases(self.aliases).help_heading(self.group)
    }
}

/// Makes [`super::Settings`] and [`super::SETTINGS`] from groups of settings, each with its help,
/// name, type and definition. The type of the first is a parameter: a file has sections there.
macro_rules! settings {
    (
        #[doc = $first_help:literal]
        $first_group:literal $first:ident: $parameter:ident = $first_definition:expr;
        $($group:literal { $(
            $(#[doc = $help:literal])+
            $field:ident: $type:ty = $definition:expr;
        )+ })+
    ) => {
        /// Settings of a server. One that is not set is `None`.
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(crate) struct Settings<$parameter = DatabaseName> {
            #[serde(alias = "name")]
            pub(crate) $first: Option<$parameter>,
            $($(
                $(#[doc = $help])+
                #[serde(deserialize_with = "value::deserialize")]
                pub(crate) $field: Option<$type>,
            )+)+
        }

        /// Definitions of all settings.
        pub(crate) const SETTINGS: &[Setting] = &[
            $first_definition.named(stringify!($first), $first_group, $first_help),
            $($( $definition.named(stringify!($field), $group, concat!($($help),+)), )+)+
        ];

        impl<$parameter> Default for Settings<$parameter> {
            fn default() -> Self {
                Self { $first: None, $($( $field: None, )+)+ }
            }
        }

        impl<$parameter> Settings<$parameter> {
            /// Returns these settings, with another type of the first.
            pub(super) fn replace_first<T>(
                self,
                replace: impl FnOnce(Option<$parameter>) -> Option<T>,
            ) -> Settings<T> {
                Settings { $first: replace(self.$first), $($( $field: self.$field, )+)+ }
            }

            /// Returns these settings, and those of `other` that are not set here.
            pub(crate) fn or(self, other: Self) -> Self {
                Self {
                    $first: self.$first.or(other.$first),
                    $($( $field: self.$field.or(other.$field), )+)+
                }
            }
        }

        impl Settings {
            /// Returns the values in the order of [`SETTINGS`], as a file has them.
            pub(crate) fn shown(&self) -> Vec<Option<String>> {
                vec![
                    self.$first.as_ref().map(Value::show),
                    $($( self.$field.as_ref().map(Value::show), )+)+
                ]
            }

            /// Replaces each path by the result of `place` for the identifier of its setting.
            pub(super) fn place_paths(&mut self, place: &mut dyn FnMut(&str, &Path) -> PathBuf) {
                if let Some(value) = &mut self.$first {
                    value.place_path(&mut |path| place(stringify!($first), path));
                }
                $($(
                    if let Some(value) = &mut self.$field {
                        value.place_path(&mut |path| place(stringify!($field), path));
                    }
                )+)+
            }

            /// Takes the live settings from `other`.
            pub(crate) fn take_live(&mut self, other: &Self) {
                $($(
                    if $definition.is_live {
                        self.$field.clone_from(&other.$field);
                    }
                )+)+
            }
        }

        impl clap::Args for Settings {
            fn augment_args(command: clap::Command) -> clap::Command {
                let mut settings = SETTINGS.iter().map(Setting::option);
                let mut next = || settings.next().unwrap_or_else(|| clap::Arg::new(""));
                command
                    .arg(DatabaseName::option(next()))
                    $($(.arg(<$type as Value>::option(next())))+)+
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::augment_args(command)
            }
        }

        impl clap::FromArgMatches for Settings {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
                let mut settings = Self::default();
                settings.update_from_arg_matches(matches)?;
                Ok(settings)
            }

            fn update_from_arg_matches(
                &mut self,
                matches: &clap::ArgMatches,
            ) -> Result<(), clap::Error> {
                self.$first = Value::take(matches, stringify!($first));
                $($( self.$field = Value::take(matches, stringify!($field)); )+)+
                Ok(())
            }
        }
    };
}

pub(super) use settings;
